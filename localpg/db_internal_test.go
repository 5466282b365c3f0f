package localpg

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestConnectionStringsInBothForms(t *testing.T) {
	for _, server := range []string{
		"postgres://ann:secret@db.example.org:5433/app?sslmode=disable",
		"postgresql://ann:secret@db.example.org:5433?sslmode=disable",
		"postgres://ann:secret@db.example.org:5433/app?dbname=other&database=third&sslmode=disable",
		"host=db.example.org port=5433 user=ann password=secret dbname=app sslmode=disable",
	} {
		dsn, err := inDatabase(server, "mine")
		require.NoError(t, err)
		cfg, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		require.Equal(t, []any{"mine", "db.example.org", uint16(5433), "ann", "secret"},
			[]any{cfg.Database, cfg.Host, cfg.Port, cfg.User, cfg.Password}, server)
	}
	_, err := inDatabase("postgres://ann:sec%ret@db/app", "mine")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "sec")
}
