package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The printed statements can be run as they are.
func TestGrantsCanBeRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	role := db.Schema + "_Ünï \"x\""
	quoted := `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	_, err := db.Exec("CREATE ROLE " + quoted)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Exec("DROP OWNED BY " + quoted + "; DROP ROLE " + quoted) })
	oncebox := func(args ...string) answer {
		return command(t, &cli.Terminal{}, append([]string{"--database-url", pgtest.URL(t), "--schema", db.Schema}, args...)...)
	}
	for _, duty := range []string{"service", "writer", "caller", "reader"} {
		a := oncebox("grants", duty, "--to", role)
		require.Equal(t, answer{out: a.out}, a)
		_, err := db.ExecContext(t.Context(), a.out)
		require.NoError(t, err)
		listed := document[map[string][]string](t, oncebox("grants", duty, "--to", role, "--json"))["statements"]
		require.Equal(t, strings.Join(listed, ";\n")+";\n", a.out)
	}
	for _, args := range [][]string{{"grants"}, {"grants", "service"}, {"grants", "king", "--to", role}, {"grants", "service", "writer", "--to", role}} {
		require.Equal(t, cli.ExitUsage, oncebox(args...).code, args)
	}
}
