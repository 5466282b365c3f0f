package command

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	outbox "github.com/oncebox/oncebox/outbox/adopt"
)

// adopting runs the command on a database whose old table has a schema of its own, and is called outbox as that of oncebox.
type adopting struct {
	t    *testing.T
	db   *pgtest.DB
	app  string // the schema of the old table
	file string
}

func newAdopting(t *testing.T) *adopting {
	t.Helper()
	db := pgtest.Migrated(t)
	a := &adopting{t, db, db.Schema + "_app", filepath.Join(t.TempDir(), "adopt.yaml")}
	a.exec("CREATE SCHEMA " + a.app)
	t.Cleanup(func() { _, _ = db.ExecContext(context.WithoutCancel(t.Context()), "DROP SCHEMA "+a.app+" CASCADE") })
	a.exec("CREATE TABLE " + a.app + ".outbox " +
		"(id bigserial PRIMARY KEY, topic text, aggregate_type text, aggregate_id text, payload text, sent_at timestamptz)")
	return a
}

func (a *adopting) exec(query string) {
	a.t.Helper()
	_, err := a.db.ExecContext(a.t.Context(), query)
	require.NoError(a.t, err)
}

func (a *adopting) write(payloads ...string) {
	a.t.Helper()
	for _, payload := range payloads {
		a.exec("INSERT INTO " + a.app + ".outbox (topic, aggregate_type, aggregate_id, payload) VALUES ('order', 'order', 'o-1', '" + payload + "')")
	}
}

func (a *adopting) oncebox(ctx context.Context, args ...string) answer {
	a.t.Helper()
	return commandWithin(ctx, &cli.Terminal{}, append([]string{"--database-url", pgtest.URL(a.t), "--schema", a.db.Schema, "adopt"}, args...)...)
}

// All steps of a way over: a mapping is suggested, looked at, and used.
func TestAdopt(t *testing.T) {
	t.Parallel()
	a := newAdopting(t)
	a.write("1", "2")
	suggested := a.oncebox(t.Context(), "--from", a.app+".outbox", "--suggest")
	require.Zero(t, suggested.code, suggested.errs)
	require.NoError(t, os.WriteFile(a.file, []byte(suggested.out), 0o600))

	missing := a.oncebox(t.Context(), "--map", a.file, "--dry-run")
	require.Equal(t, cli.ExitUsage, missing.code)
	require.Contains(t, missing.errs, "the events need the name of their service: give --source")
	dry := a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--dry-run", "--rows", "1")
	require.Zero(t, dry.code, dry.errs)
	require.Contains(t, dry.out, "default|order|o-1")
	require.Regexp(t, `(?m)^order +2$`, dry.out)
	require.Equal(t, answer{out: "2 rows were moved.\n"}, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--once"))
	require.Equal(t, answer{errs: "No row is unsent.\n"}, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--dry-run"))

	require.Contains(t, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--forward").out, "are forwarded by the transactions")
	a.write("3")
	require.Equal(t, outbox.Summary{}, document[outbox.Summary](t, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--once", "--json")))
	require.Contains(t, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--stop-forwarding").out, "not forwarded any more")

	a.write("4", "bad", "6")
	dry = a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--dry-run")
	require.Equal(t, cli.ExitFindings, dry.code)
	require.Contains(t, dry.errs, "no event can be made of 1 row, and 1 row is behind them")
	once := a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--once")
	require.Equal(t, cli.ExitFindings, once.code)
	require.Contains(t, once.errs, "2 rows are left in the table")
	require.Regexp(t, `(?m)^5 +\(\d+,\d+\) +the payload is not valid JSON`, once.out)
	var stored int
	require.NoError(t, a.db.NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &stored))
	require.Equal(t, 4, stored)
}

// The status shows the old table until the end of the switch, also if the table was dropped. A row that no event can be made of is a dead letter, which
// can be published with the payload that it has.
func TestStatusOfAnOldTable(t *testing.T) {
	t.Parallel()
	a := newAdopting(t)
	a.write("1")
	suggested := a.oncebox(t.Context(), "--from", a.app+".outbox", "--suggest")
	require.NoError(t, os.WriteFile(a.file, []byte(suggested.out), 0o600))
	run := func(args ...string) answer {
		return commandWithin(t.Context(), &cli.Terminal{}, append([]string{"--database-url", pgtest.URL(t), "--schema", a.db.Schema}, args...)...)
	}
	require.NotContains(t, run("status").out, "OLD TABLE")
	require.Zero(t, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--forward").code)
	a.write("2")
	a.exec("ALTER TABLE " + a.app + ".outbox DISABLE TRIGGER oncebox_forward")
	a.write("3")
	require.Regexp(t, `(?m)^OLD TABLE +WAITING[^\n]+\n`+a.app+`\.outbox +1 +- +0 +disabled`, run("status").out)
	a.exec("ALTER TABLE " + a.app + ".outbox ENABLE TRIGGER oncebox_forward")
	a.exec("INSERT INTO " + a.app + ".outbox (topic, aggregate_type, aggregate_id, payload) VALUES ('a/b', 'order', 'o-1', '4')")
	var id string
	a.exec("WITH o AS (DELETE FROM outbox WHERE event_metadata LIKE '%oncebox.refused%' RETURNING *) " +
		"INSERT INTO outbox_dead SELECT o.*, now(), 'no topic' FROM o")
	require.NoError(t, a.db.NewRaw("SELECT id FROM outbox_dead").Scan(t.Context(), &id))
	same := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(same, []byte("4"), 0o600))
	edited := run("dead", "edit", id, "--payload-file", same, "--by", "ann", "--why", "it was right", "--yes")
	require.Zero(t, edited.code, edited.errs)
	a.exec("DROP TABLE " + a.app + ".outbox CASCADE")
	require.Contains(t, run("status").out, "there is no table")
	require.Contains(t, a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--stop-forwarding").out, "What was left of its adoption is removed")
	require.NotContains(t, run("status").out, "OLD TABLE")
	missing := a.oncebox(t.Context(), "--map", a.file, "--source", "shop", "--once")
	require.Contains(t, missing.errs, "there is no table")
}

// Without --once it runs until it is stopped, and moves what comes meanwhile.
func TestAdoptUntilItIsStopped(t *testing.T) {
	t.Parallel()
	a := newAdopting(t)
	a.write("1")
	suggested := a.oncebox(t.Context(), "--from", a.app+".outbox", "--suggest")
	require.NoError(t, os.WriteFile(a.file, []byte(suggested.out), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan answer, 1)
	go func() { ended <- a.oncebox(ctx, "--map", a.file, "--source", "shop") }()
	stored := func(n int) func() bool {
		return func() bool {
			var is int
			return a.db.NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &is) == nil && is == n
		}
	}
	await.True(t, stored(1), "the row is moved")
	a.write("2")
	await.True(t, stored(2), "the next row is moved")
	stop()
	got := await.Receive(t, ended, "the command ends")
	require.Zero(t, got.code, got.errs)
	require.Equal(t, "2 rows were moved.\n", got.out)
}

func TestMistakesOfAdopt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "adopt.yaml")
	require.NoError(t, os.WriteFile(file, []byte("colour: red"), 0o600))
	for args, want := range map[string]string{
		"":                               "--map is missing",
		"--suggest":                      "--suggest needs --from",
		"--from a --map b":               "--from is for --suggest",
		"--from a --map b --suggest":     "leave one of them out",
		"--map " + file + " --rows -1":   "--rows is below 0",
		"--map /nowhere":                 "--map: open /nowhere",
		"--map " + file:                  "field colour not found",
		"--map b --once --dry-run":       "none of the others can be",
		"--map b --once --batch-size no": "invalid argument",
	} {
		a := command(t, &cli.Terminal{}, append([]string{"adopt"}, strings.Fields(args)...)...)
		require.Contains(t, a.errs, want, args)
		if !strings.Contains(args, "--dry-run") {
			require.Equal(t, cli.ExitUsage, a.code, args)
		}
	}
}
