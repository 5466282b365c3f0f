package status

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/adopt"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// watcher prints the status again and again.
type watcher struct {
	session *cli.Session

	filter ops.Filter
	before outboxstate.Traffic
	course course
}

// Control sequences of terminals.
const (
	EnterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen without a cursor; leaving it brings the former text back
	LeaveScreen = "\x1b[?25h\x1b[?1049l"
	ScreenTop   = "\x1b[H"
	LineEnd     = "\x1b[K\r\n"
	ScreenEnd   = "\x1b[J"
)

// watch prints the status every interval until ctx is done. An error of the first reading ends it; later
// readings are tried again.
func watch(ctx context.Context, s *cli.Session, filter ops.Filter, interval time.Duration) error {
	w := &watcher{session: s, filter: filter}
	item, err := w.read(ctx)
	// The first error ends it, because it is probably a wrong address or a missing right. A later one is probably an
	// outage, which the operator wants to see end.
	if err != nil && ctx.Err() == nil {
		return err
	}
	if w.drawn() {
		fmt.Fprint(s.Out, EnterScreen)
		defer fmt.Fprint(s.Out, LeaveScreen)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if ctx.Err() != nil {
			return nil // the operator has ended it, which also cancels the reading
		}
		if err := w.show(item, err); err != nil {
			return err
		}
		select {
		// The loop's first line ends it: the deferred text then leaves the alternate screen.
		case <-ctx.Done():
		case <-tick.C:
			item, err = w.read(ctx)
		}
	}
}

// drawn reports whether each output replaces the one before, as on a terminal. A file gets line after line.
func (w *watcher) drawn() bool { return w.session.Size != nil && !w.session.JSON }

// read reads the status, with the rates since the reading before.
func (w *watcher) read(ctx context.Context) (*Item, error) {
	st, err := w.session.View().Status(ctx, w.filter)
	if err != nil {
		return nil, err
	}
	adopted, err := adopt.States(ctx, w.session.Outbox())
	if err != nil {
		return nil, err
	}
	item := statusOf(w.session.Program, &st, adopted, w.filter)
	item.since(st.Traffic, w.before)
	w.before = st.Traffic
	w.course.add(item)
	return item, nil
}

// show prints the status, or the error of the reading. An error replaces the screen, so that nobody takes
// old numbers for present ones.
func (w *watcher) show(item *Item, failed error) error {
	if failed != nil {
		if w.drawn() {
			lines := []string{"The status could not be read; the next try follows:"}
			width, _ := w.session.Size()
			// The error is cut to the width by characters, because the terminal's own wrapping would push
			// lines out of the screen.
			for part := range slices.Chunk([]rune(cli.Printable(failed.Error())), max(width, 1)) {
				lines = append(lines, string(part))
			}
			return w.draw(lines)
		}
		w.session.Complain("the status could not be read; the next try follows: " + cli.Printable(failed.Error()))
		return nil
	}
	switch {
	case w.session.JSON:
		return json.NewEncoder(w.session.Out).Encode(item)
	case !w.drawn():
		_, err := fmt.Fprintln(w.session.Out, item.line())
		return err
	}
	var screen bytes.Buffer
	if err := cli.Columns(&screen, w.course.rows(item)); err != nil {
		return err
	}
	screen.WriteByte('\n')
	if err := item.print(&screen); err != nil {
		return err
	}
	return w.draw(append([]string{cli.Moment(item.At) + "  Ctrl-C ends it", ""}, strings.Split(strings.TrimRight(screen.String(), "\n"), "\n")...))
}

// draw writes lines over those of the previous output, as many as the screen has. Overwriting flickers less
// than clearing first.
func (w *watcher) draw(lines []string) error {
	width, height := w.session.Size()
	var screen strings.Builder
	screen.WriteString(ScreenTop)
	for _, line := range lines[:min(len(lines), max(height-1, 1))] {
		screen.WriteString(cli.Short(line, max(width, 1)))
		screen.WriteString(LineEnd)
	}
	screen.WriteString(ScreenEnd)
	_, err := fmt.Fprint(w.session.Out, screen.String())
	return err
}

// line returns the status in one line of key=value pairs, for a file. It has the numbers that change; oncebox status
// without --watch has the rest.
func (i *Item) line() string {
	o := &i.Outbox
	parked, dead := i.totals()
	line := fmt.Sprintf("%s backlog=%d new=%d held=%d", cli.Moment(i.At), o.Backlog, o.New, o.Held)
	if !i.selects {
		line += fmt.Sprintf(" oldest=%.1fs failed=%d delayed=%d", o.OldestAgeSeconds, o.Failed, o.Delayed)
	}
	if o.RecordedPerSecond != nil {
		line += fmt.Sprintf(" recorded_per_second=%.1f left_per_second=%.1f", *o.RecordedPerSecond, *o.LeftPerSecond)
	}
	return line + fmt.Sprintf(" dead_events=%d parked=%d dead_messages=%d unknown_steps=%d free_lanes=%d", o.Dead, parked, dead, i.UnknownSteps, o.FreeLanes)
}
