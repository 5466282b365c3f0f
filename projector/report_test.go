package projector_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
)

// A line in the log says which event it is about, so that an operator finds it by id: when it is refused, when it is refused again while it is
// held, and when it is given up, at first or later.
func TestLogNamesTheEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	book := &logbook.Book{}
	cfg := quick()
	cfg.MaxRetryAttempts = 3
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(book, nil))
	f.pub.refuse = func(e event.Envelope) error {
		if e.Type == "never" {
			return messaging.Permanent(errors.New("no schema"))
		}
		return errors.New("not now")
	}
	never, again := f.add("a", "never"), f.add("b", "again")
	f.run(f.projector(cfg))
	f.eventually("both are dead", func() bool { s := f.statuses(); return s["never"] == "DEAD" && s["again"] == "DEAD" })
	f.eventually("both are told", func() bool { return book.Count("an event is a dead letter now") == 2 })

	lines := map[string]int{}
	for line := range strings.Lines(book.String()) {
		for kind, what := range map[string]string{"never": never, "again": again} {
			if strings.Contains(line, " id="+what+" ") {
				lines[kind]++
				for _, part := range []string{" type=" + kind, " topic=order", " tenant=default", " aggregate_type=order", " ordering_key=", " sequence="} {
					require.Contains(t, line, part)
				}
			}
		}
	}
	require.Equal(t, map[string]int{"never": 1, "again": 3}, lines, "two refusals and the end")
}
