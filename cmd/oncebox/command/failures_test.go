package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/failures"
	"github.com/oncebox/oncebox/messaging"
)

// failures lists the causes.
func (s *shop) failures(args ...string) (items []failures.Item) {
	s.t.Helper()
	a := s.oncebox(append([]string{"failures", "list", "--json"}, args...)...)
	require.NoError(s.t, json.Unmarshal([]byte(a.out), &items), a.errs)
	return items
}

// An outage is one line with the true number, whose command tries all of it at once.
func TestOutageIsOneLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const many = 120
	s.refuse = func(m *messaging.Message) error {
		return fmt.Errorf("dial tcp 10.0.0.1:%d: connection refused", 1000+len(m.ID))
	}
	for n := range many {
		s.place(fmt.Sprint("o-", n))
	}
	s.DrainFailing()
	s.killed()
	s.refuse = nil

	stuck := s.oncebox("stuck")
	require.Equal(t, cli.ExitFindings, stuck.code)
	require.Regexp(t, `billing: 120 ordering keys fail, "dial tcp …: connection refused", since .+Z, next try in`, stuck.out)
	require.Contains(t, stuck.errs, "122 things are stuck, for 3 reasons")
	items := s.failures()
	require.Len(t, items, 3)
	byCause := map[string]failures.Item{}
	for _, i := range items {
		byCause[i.Cause] = i
	}
	outage := byCause["dial tcp …: connection refused"]
	require.Equal(t, []int{many, 0}, []int{outage.Failing, outage.Dead})
	require.NotNil(t, outage.Next)
	refused := byCause["no schema"]
	require.Equal(t, []any{"order", "", 1}, []any{refused.Topic, refused.Consumer, refused.Dead})
	require.Len(t, s.failures("--consumer", "billing"), 2)
	table := s.oncebox("failures", "list")
	require.Zero(t, table.code)
	require.Regexp(t, outage.Fingerprint+` +billing +order.placed +120 +0 .*dial tcp …: connection refused`, table.out)
	require.NotContains(t, table.out, "\x1b", "what a terminal would obey")
	require.Contains(t, s.oncebox("failures", "list", "--limit", "1").errs, "1 of 3 shown: --limit 3 shows all.")

	shown := s.oncebox("failures", "show", outage.Fingerprint)
	require.Contains(t, shown.out, "mend the cause")
	require.Contains(t, shown.out, "dial tcp 10.0.0.1:1036: connection refused", "the whole error of one of them")
	require.Equal(t, outage, document[failures.Item](t, s.oncebox("failures", "show", outage.Fingerprint, "--json")))

	retry := []string{"failures", "retry", outage.Fingerprint}
	require.Equal(t, cli.ExitUsage, s.oncebox(retry...).code, "it says who")
	require.Equal(t, cli.ExitUsage, s.oncebox(append(retry, "--by", "ann", "--rate", "-1")...).code)
	require.Equal(t, "120 failing messages would be tried at once\n", s.oncebox(append(retry, "--dry-run")...).out)
	require.Equal(t, cli.ExitRefused, s.asked("n\n", append(retry, "--by", "ann")...).code)
	line := stuck.out[strings.Index(stuck.out, "or at once with: ")+len("or at once with: "):]
	line, _, _ = strings.Cut(line, "\n")
	done := s.typed(line)
	require.Zero(t, done.code, done.errs)
	require.Contains(t, done.errs, `retry 120 failing messages of "dial tcp …: connection refused"? [y/N]`)
	require.Contains(t, done.out, "120 failing messages tried at once")
	s.Drain()
	require.EqualValues(t, many, s.billed.Load())
	require.Equal(t, cli.ExitNothing, s.oncebox(append(retry, "--by", "ann", "--yes")...).code)

	var letter failures.Item
	for cause, i := range byCause {
		if strings.HasPrefix(cause, "unknown currency") {
			letter = i
		}
	}
	discard := []string{"failures", "discard", letter.Fingerprint, "--by", "ann", "--yes"}
	require.Equal(t, cli.ExitUsage, s.oncebox(discard...).code, "it says why")
	require.Equal(t, "1 dead letter discarded\n", s.oncebox(append(discard, "--why", "test data")...).out)
	replayed := document[failures.Result](t, s.oncebox("failures", "replay", refused.Fingerprint, "--rate", "1000", "--by", "ann", "--yes", "--json"))
	require.Equal(t, failures.Result{Action: "replay", Fingerprint: refused.Fingerprint, Count: 1}, replayed)
	s.Drain()
	require.Empty(t, s.failures())
	require.Equal(t, "Nothing fails.\n", s.oncebox("failures", "list").errs)
	s.countedSince()
	require.Equal(t, "Nothing is stuck.\n", s.oncebox("stuck").out)
}

// What an operator has archived is out of the lists until something new fails for it. A note stays.
func TestArchivedCauseComesBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refuse = func(*messaging.Message) error { return errors.New("smtp is away") }
	s.place("a")
	s.DrainFailing()
	f := s.failures()[0].Fingerprint
	for _, args := range [][]string{
		{"note", f}, {"note", f, "x"}, {"archive", f, "--by", "ann"}, {"archive", "--by", "ann", "--why", "x"}, {"unarchive", f}, {"show"}, {"nothing"},
	} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"failures"}, args...)...).code, args)
	}
	for _, args := range [][]string{
		{"show", "0"}, {"note", "0", "x", "--by", "ann"}, {"archive", "0", "--by", "ann", "--why", "x"}, {"retry", "0", "--by", "ann"},
	} {
		require.Equal(t, cli.ExitNothing, s.oncebox(append([]string{"failures"}, args...)...).code, args)
	}
	require.Equal(t, "The note is stored.\n", s.oncebox("failures", "note", f, "it restarts at 02:30", "--by", "ann").out)
	require.Contains(t, s.oncebox("stuck").out, "it restarts at 02:30, by ann")
	require.Contains(t, s.oncebox("failures", "archive", f, "--by", "bob", "--why", "known").out, "It comes back with the next failure")

	stuck := s.oncebox("stuck")
	require.Zero(t, stuck.code, stuck.out)
	require.Contains(t, stuck.out, "1 cause is archived, and left out: oncebox failures list --archived")
	require.Empty(t, s.stuck())
	require.Empty(t, s.failures())
	require.Contains(t, s.oncebox("failures", "list").errs, "1 more cause is archived")
	require.Equal(t, "bob", s.failures("--archived")[0].ArchivedBy)
	s.Advance(time.Hour)
	s.DrainFailing()
	require.Empty(t, s.failures(), "another try of the same message is nothing new")

	s.place("b")
	s.DrainFailing()
	back := s.failures()[0]
	require.Equal(t, []any{true, false, 2}, []any{back.Back, back.Archived, back.Failing})
	require.Contains(t, s.oncebox("failures", "list").out, "back from the archive; it restarts at 02:30")
	require.Contains(t, s.oncebox("failures", "show", f).out, "back since it was archived")
	require.Regexp(t, `archived before +by bob at .*: known`, s.oncebox("stuck").out)
	require.Zero(t, s.oncebox("failures", "archive", f, "--by", "bob", "--why", "known").code)
	require.Contains(t, s.oncebox("failures", "unarchive", f, "--by", "ann").out, "in the lists again")
	require.False(t, s.failures()[0].Back)
	s.refuse = nil
	s.Advance(time.Hour)
	s.Drain()
	require.Contains(t, s.oncebox("failures", "show", f).out, "it restarts at 02:30, by ann", "the note stays")
}
