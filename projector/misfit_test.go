package projector_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

// A projector whose role lacks a right, or whose build does not fit the tables, can claim no lanes, or cannot keep them. It has no share
// of them: whatever it lacks, the other one serves them all. Its log says why.
func TestProjectorThatCannotServeLanesHasNoShareOfThem(t *testing.T) {
	t.Parallel()
	for _, lacks := range []string{
		"SELECT ON outbox_claim", "DELETE ON outbox_claim", "UPDATE ON outbox_lane", // claim and keep
		"SELECT ON outbox", "INSERT ON outbox_claim", "INSERT ON outbox_progress", "INSERT ON outbox_held", // read, take, record
	} {
		t.Run(lacks, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.countBeats()
			role := f.db.Schema
			for _, statement := range []string{
				"CREATE ROLE %[1]s LOGIN PASSWORD 'secret'", "GRANT USAGE ON SCHEMA %[1]s TO %[1]s", "GRANT ALL ON ALL TABLES IN SCHEMA %[1]s TO %[1]s",
				"GRANT ALL ON ALL SEQUENCES IN SCHEMA %[1]s TO %[1]s", "REVOKE " + lacks + " FROM %[1]s",
			} {
				_, err := f.db.Exec(fmt.Sprintf(statement, role))
				require.NoError(t, err)
			}
			t.Cleanup(func() {
				_, err := f.db.Exec(fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
				require.NoError(t, err)
			})
			f.run(f.keeping("able", 10e6))
			f.owns("able", 64)
			refused := make(chan string, 100)
			cfg := quick()
			cfg.Name = "unable"
			cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(writer(func(line string) {
				if strings.Contains(line, "cannot serve lanes") {
					select {
					case refused <- line:
					default: // nobody reads the later lines
					}
				}
			}), nil))
			pool := f.pool(&tap{}, func(u *url.URL) { u.User = url.UserPassword(role, "secret") })
			f.run(f.relay(f.pub, cfg, outbox.NewStore(pool, &outbox.Config{Source: "test"})))
			for range 2 {
				require.Contains(t, <-refused, "permission denied for table "+strings.Fields(lacks)[2])
			}
			f.beats("able", 2)
			f.owns("able", 64)
			require.Zero(t, f.rows("beats WHERE owner = 'unable'"))
		})
	}
}

// writer is an output whose lines are handled one by one.
type writer func(line string)

// Write hands a line on.
func (w writer) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
