package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestTablesAreMadeAndChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	oncebox := func(args ...string) answer {
		return command(t, &cli.Terminal{}, append([]string{"--database-url", pgtest.URL(t), "--schema", db.Schema}, args...)...)
	}
	var v verdict
	a := oncebox("migrate", "status", "--json")
	require.Equal(t, cli.ExitFindings, a.code)
	require.NoError(t, json.Unmarshal([]byte(a.out), &v))
	require.NotEmpty(t, v.Missing)
	a = oncebox("dead", "list")
	require.Equal(t, cli.ExitFailed, a.code)
	require.Contains(t, a.errs, "oncebox migrate up")

	a = oncebox("migrate", "up")
	require.Regexp(t, `^The tables are up to date; [1-9]\d* migration files were missing: `+strings.Join(v.Missing, ", ")+`\.\n$`, a.out)
	require.Equal(t, answer{out: "The tables are up to date.\n"}, oncebox("migrate", "up"))
	require.Equal(t, verdict{UpToDate: true}, document[verdict](t, oncebox("migrate", "up", "--json")))
	require.Equal(t, verdict{UpToDate: true}, document[verdict](t, oncebox("migrate", "verify", "--json")))

	_, err := db.ExecContext(t.Context(), "DROP INDEX inbox_dead_tenant")
	require.NoError(t, err)
	a = oncebox("migrate", "verify", "--json")
	require.Equal(t, cli.ExitFindings, a.code)
	v = verdict{}
	require.NoError(t, json.Unmarshal([]byte(a.out), &v))
	require.Len(t, v.Differences, 1)
	_, err = db.ExecContext(t.Context(), v.Differences[0].Mend)
	require.NoError(t, err)
	require.Zero(t, oncebox("migrate", "verify").code)
}
