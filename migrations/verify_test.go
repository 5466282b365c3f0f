package migrations_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

// tables.txt is what Verify compares with. It is never written by hand.
func TestTablesAreAsWritten(t *testing.T) {
	opened := pgtest.Migrated(t)
	facts, err := migrations.Tables(t.Context(), opened.DB, opened.Schema)
	require.NoError(t, err)
	if os.Getenv("WRITE_TABLES") != "" {
		require.NoError(t, os.WriteFile("tables.txt", []byte(facts), 0o600))
	}
	written, err := os.ReadFile("tables.txt")
	require.NoError(t, err)
	require.Equal(t, facts, string(written), "the files make other tables: WRITE_TABLES=1 go test ./migrations -run TestTablesAreAsWritten writes them down")
}
