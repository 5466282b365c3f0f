package pgplan_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestUnboundedFindsWhatReadsWholeTables(t *testing.T) {
	db := pgtest.Open(t)
	_, err := db.Exec(`CREATE TABLE big (id int PRIMARY KEY, other int); CREATE TABLE bystander (id int)`)
	require.NoError(t, err)
	_, err = db.Exec(`INSERT INTO big SELECT i, -i FROM generate_series(1, 100000) i`)
	require.NoError(t, err)
	_, err = db.Exec(`ANALYZE big`)
	require.NoError(t, err)
	for statement, want := range map[string][]string{
		"SELECT * FROM big WHERE id = $1":                                                       nil,
		"SELECT * FROM big WHERE id > $1 ORDER BY id LIMIT 10":                                  nil,
		"SELECT * FROM bystander ORDER BY id":                                                   nil,
		"SELECT * FROM (SELECT * FROM big WHERE id > $1 ORDER BY id LIMIT 10) x ORDER BY other": nil,
		"SELECT * FROM big WHERE other = $1":                                                    {"it scans all of big"},
		"SELECT * FROM big WHERE id BETWEEN $1 AND $1 + 10 ORDER BY other":                      {"it sorts what it reads of big"},
		"WITH x AS MATERIALIZED (SELECT * FROM big ORDER BY other) SELECT * FROM x WHERE other > $1": {
			"it sorts what it reads of big", "it scans all of big",
		},
	} {
		plan, err := pgplan.Generic(t.Context(), db.DB.DB, statement)
		require.NoError(t, err)
		require.Equal(t, want, plan.Unbounded(regexp.MustCompile("^big$")), plan.Text)
	}
	_, err = pgplan.Generic(t.Context(), db.DB.DB, "SELECT FROM nowhere")
	require.ErrorContains(t, err, "pgplan: prepare: ")
}
