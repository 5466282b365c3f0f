package pgerr_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestCodes(t *testing.T) {
	db, run := pgtest.Open(t).DB, pgsql.New("", false)
	_, err := run.Exec(t.Context(), db, `SELECT $1::int / 0`, 1)
	require.Equal(t, "22012", pgerr.Code(fmt.Errorf("wrapped: %w", err)))
	require.Equal(t, err, pgerr.Explain(err), "nothing to add")

	err = run.QueryRow(t.Context(), db, `SELECT 1 FROM no_such_table`, nil, new(int))
	require.Equal(t, pgerr.UndefinedTable, pgerr.Code(err))
	require.ErrorContains(t, pgerr.Explain(err), "migrations.Up (App.Migrate)")
	require.ErrorIs(t, pgerr.Explain(err), err)

	_, err = db.ExecContext(t.Context(), "EXECUTE no_such_statement")
	require.Equal(t, pgerr.InvalidStatementName, pgerr.Code(err))
	require.ErrorIs(t, pgerr.Explain(err), pgerr.ErrPooler)
	require.ErrorIs(t, pgerr.Explain(err), err)
	twice := pgerr.Explain(fmt.Errorf("wrapped: %w", pgerr.Explain(err)))
	require.EqualError(t, twice, "wrapped: "+pgerr.Explain(err).Error(), "it is said once")

	require.Empty(t, pgerr.Code(nil))
	require.Empty(t, pgerr.Code(sql.ErrNoRows))
	require.Empty(t, pgerr.Code(errors.New("23505")))
	require.NoError(t, pgerr.Explain(nil))
}
