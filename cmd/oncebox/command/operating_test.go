package command

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/messaging"
)

// update writes what the commands print into the page: go test ./cmd/oncebox/command -run TestOperatingPage -update.
var update = flag.Bool("update", false, "write the transcripts of docs/operating.md anew")

const operatingPage = "../../../docs/operating.md"

// scenes produce the trouble that each section of the page is about.
var scenes = map[string]func(*shop){
	"A poison event": func(s *shop) {
		s.FailNextPublish(messaging.Permanent(errors.New("topic order: the schema has no field Order")))
		s.place("42")
		s.DrainFailing()
	},
	"A poison message": func(s *shop) {
		s.refuse = func(m *messaging.Message) error {
			if strings.Contains(string(m.Payload), "forty") {
				return messaging.Permanent(errors.New(`order "forty-two" is no number`))
			}
			return nil
		}
		s.place("forty-two")
		s.DrainFailing()
		require.NoError(s.t, os.WriteFile("mended.json", []byte(`{"Order":"42"}`), 0o600))
	},
	"A stuck key":     (*shop).unknownStep,
	"A delayed event": (*shop).delayed,
}

// play is a section of the page on a shop of its own.
type play struct {
	*shop

	title string
	typed int
	// same maps ids of the page to ids of this run. first is the first id of the last output, for an update.
	same, first map[string]string
}

// An operator mends each of four troubles with the commands of docs/operating.md, in under four of them, and they print what the page says. Ids and
// times differ from run to run: each id of the page stands for one of the run.
func TestOperatingPageIsWhatTheCommandsPrint(t *testing.T) {
	text, err := os.ReadFile(operatingPage)
	require.NoError(t, err)
	page, err := filepath.Abs(operatingPage)
	require.NoError(t, err)
	left := maps.Clone(scenes)
	var p *play
	parts := strings.Split(string(text), "```")
	for n, part := range parts {
		transcript, found := strings.CutPrefix(part, "console\n")
		switch {
		case n%2 == 1 && found:
			require.NotNil(t, p, "a transcript in a section without a scene")
			parts[n] = "console\n" + p.transcript(transcript)
		case n%2 == 0:
			for _, title := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(part, -1) {
				p.end()
				p = nil
				if set := left[title[1]]; set != nil {
					t.Chdir(t.TempDir())
					p = &play{shop: newShop(t), title: title[1], same: map[string]string{}}
					set(p.shop)
					delete(left, title[1])
				}
			}
		}
	}
	p.end()
	require.Empty(t, left, "the page has no transcript of them")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(strings.Join(parts, "```")), 0o600))
	}
}

// transcript types the commands of a block, compares, and returns the block as it was in this run.
func (p *play) transcript(block string) string {
	p.t.Helper()
	var now strings.Builder
	for _, entry := range strings.Split("\n"+block, "\n$ ")[1:] {
		p.typed++
		line, want, _ := strings.Cut(entry, "\n")
		typed := replaceAll(line, p.same)
		if *update { // a new command has any ids: they stand for the first one of the output before
			typed = replaceAll(line, p.first)
		}
		got := p.typedInAShell(typed)
		fmt.Fprintf(&now, "$ %s\n%s", typed, got)
		if *update {
			p.remember(got)
		} else {
			require.Equal(p.t, masked(strings.TrimSpace(want)), masked(strings.TrimSpace(got)), "%s: %s", p.title, line)
			p.match(want, got)
		}
		p.Drain()
	}
	return now.String()
}

// match notes which id of the run an id of the page stands for.
func (p *play) match(want, got string) {
	p.t.Helper()
	mine := ids.FindAllString(got, -1)
	for n, id := range ids.FindAllString(want, -1) {
		require.Contains(p.t, []string{"", mine[n]}, p.same[id], "%s: %s is two ids", p.title, id)
		p.same[id] = mine[n]
	}
}

// remember notes the first id of an output, under its length: ids of different kinds have different lengths.
func (p *play) remember(output string) {
	if id := ids.FindString(output); id != "" {
		p.first = map[string]string{strconv.Itoa(len(id)): id}
	}
}

// end makes sure that the trouble is over.
func (p *play) end() {
	if p == nil {
		return
	}
	p.t.Helper()
	require.Positive(p.t, p.typed, p.title)
	require.Less(p.t, p.typed, 4, "under four commands: %s", p.title)
	require.Empty(p.t, p.stuck(), "%s is mended", p.title)
	require.Empty(p.t, document[[]events.DelayedEvent](p.t, p.oncebox("delayed", "list", "--json")))
}

// typedInAShell is what a terminal shows of a command.
func (s *shop) typedInAShell(line string) string {
	s.t.Helper()
	a := s.oncebox(words(s.t, line)...)
	require.Contains(s.t, []int{cli.ExitDone, cli.ExitFindings}, a.code, "%s: %s", line, a.errs)
	host, err := os.Hostname()
	require.NoError(s.t, err)
	// The process that failed has the name of the host and a number.
	return regexp.MustCompile(regexp.QuoteMeta(host)+`(-\d+)?`).ReplaceAllString(a.out+a.errs, "worker-1")
}

var (
	ids   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{64}\b`)
	times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)

// masked is a text without what differs from run to run.
func masked(text string) string {
	return times.ReplaceAllString(ids.ReplaceAllString(text, "ID"), "TIME")
}

func replaceAll(text string, same map[string]string) string {
	return ids.ReplaceAllStringFunc(text, func(id string) string {
		if mine := cmp.Or(same[id], same[strconv.Itoa(len(id))]); mine != "" {
			return mine
		}
		return id
	})
}
