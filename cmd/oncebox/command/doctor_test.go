package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/doctor"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The server of the tests may have findings of its own, for it is volatile.
func TestDoctorTellsWhatItFound(t *testing.T) {
	t.Setenv("ONCEBOX_PULSAR_URL", "")
	t.Setenv("PULSAR_URL", "")
	t.Setenv("ONCEBOX_SOURCE", "shop")
	db := pgtest.Migrated(t)
	_, err := db.Exec("DROP INDEX inbox_dead_tenant")
	require.NoError(t, err)
	oncebox := func(args ...string) answer {
		return command(t, &cli.Terminal{Shows: true}, append([]string{"--database-url", pgtest.URL(t), "--schema", db.Schema}, args...)...)
	}
	a := oncebox("doctor", "--json")
	require.Equal(t, cli.ExitFindings, a.code)
	require.Contains(t, a.errs, "checks", "progress")
	var d diagnosis
	require.NoError(t, json.Unmarshal([]byte(a.out), &d))
	require.False(t, d.Broker)
	var found *doctor.Finding
	for n := range d.Findings {
		if d.Findings[n].Check == "tables" {
			require.Nil(t, found, "one index")
			found = &d.Findings[n]
		}
	}
	require.NotNil(t, found)
	require.Contains(t, oncebox("doctor").out, "problem (tables): index inbox_dead_tenant: is missing\n  to mend it: CREATE INDEX")
	_, err = db.Exec(found.Mend)
	require.NoError(t, err)
	require.NotContains(t, oncebox("doctor").out, "(tables)")

	t.Setenv("ONCEBOX_PULSAR_URL", "pulsar://127.0.0.1:1")
	t.Setenv("ONCEBOX_PULSAR_ADMIN_URL", "http://127.0.0.1:1")
	require.Contains(t, oncebox("doctor").out, "unknown (broker): this check could not be made")
	require.Contains(t, oncebox("doctor").out, "problem (connection): no host in ONCEBOX_PULSAR_URL accepts a connection")
}
