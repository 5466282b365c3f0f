package adopt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/adopt"
)

// many is a table with rows that were sent, and a few that were not.
const many = `INSERT INTO old (order_id, payload, sent_at) SELECT i % 100, i::text, CASE WHEN i < 20000 THEN now() END FROM generate_series(1, 20500) i`

func (f *fixture) explain(statement string, args ...string) string {
	f.t.Helper()
	statement = strings.NewReplacer(args...).Replace(statement)
	var lines []string
	require.NoError(f.t, f.db.NewRaw("EXPLAIN (COSTS OFF) "+strings.ReplaceAll(statement, "?", `\?`)).Scan(f.t.Context(), &lines))
	return strings.Join(lines, "\n")
}

// With an index that fits, no statement reads rows that were sent, and none sorts.
func TestStatementsUseIndexes(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(many)
	f.exec(`CREATE INDEX old_unsent ON old (id) WHERE sent_at IS NULL`)
	f.exec(`ANALYZE old`)
	m := f.mover(mapOrders)
	read := f.explain(m.Read(), "$1", "'{}'", "$2", "'{}'", "$3", "500")
	require.Contains(t, read, "Index Scan using old_unsent")
	require.NotContains(t, read, "Sort")
	require.Regexp(t, `Tid(Range)? Scan on old`, f.explain(m.Take(), "$1", "ARRAY['(0,1)']", "$2", "ARRAY['x']"))
	require.NoError(t, m.Forward(t.Context()))
	require.Regexp(t, "Index Scan using old_(pkey|unsent)", f.explain("SELECT id, payload FROM "+m.Forwarded()+" r WHERE r.key0 = 7 AND r.unsent"))
	require.Contains(t, f.explain("UPDATE "+m.Forwarded()+" r SET mark0 = now() WHERE r.key0 = 7"), "Index Scan using old_pkey")
}

// Without such an index the preview says which one to make, and with it the preview says nothing.
func TestAdvice(t *testing.T) {
	f := newFixture(t, strings.Replace(orders, "PRIMARY KEY", "", 1))
	advice := func() []string {
		p, err := f.mover(mapOrders).Preview(t.Context(), 1)
		require.NoError(t, err)
		return p.Advice
	}
	require.Len(t, advice(), 1)
	require.Contains(t, advice()[0], "the table has no primary key")
	f.exec(`ALTER TABLE old ADD PRIMARY KEY (id)`)
	f.exec(many)
	f.exec(`ANALYZE old`)
	require.Len(t, advice(), 1)
	_, statement, _ := strings.Cut(advice()[0], "sorts it: ")
	require.Equal(t, `CREATE INDEX CONCURRENTLY ON "`+f.db.Schema+`"."old" ("id") WHERE "sent_at" IS NULL`, statement)
	f.exec(statement)
	require.Empty(t, advice())
	f.once(f.mover(mapOrders))
	require.Equal(t, adopt.Summary{}, f.once(f.mover(mapOrders)))
}
