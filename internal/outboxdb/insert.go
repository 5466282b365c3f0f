package outboxdb

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
)

// insertColumns are all columns except the ones with a DEFAULT.
var insertColumns = slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.value == nil }) //nolint:gochecknoglobals // a constant

// maxValues is the largest number of rows whose values are parameters of their own; more rows are sent as arrays.
// Server and driver spend less on parameters, but each number of rows is a statement to prepare.
const maxValues = 16

// insertStatements store events whose values of some columns are shared.
type insertStatements struct {
	shared, mine []column
	// texts has the statements for 1 to maxValues rows, and at 0 the statement for any number.
	texts [maxValues + 1]string
}

// inserts has the statements, by two facts: whether the tenants are entered too, and whether the events are alike.
var inserts = map[[2]bool]*insertStatements{ //nolint:gochecknoglobals // a constant
	{false, false}: makeInserts("", false),
	{false, true}:  makeInserts("", true),
	{true, false}:  makeInserts(enterTenants, false),
	{true, true}:   makeInserts(enterTenants, true),
}

// alike reports whether the rows differ only in columns that always differ (own). Most units of work record events of
// one aggregate. Then a third of the parameters is enough, and parameters are most of the cost of further events in a
// unit.
func alike(rows []Row) bool {
	for i := range rows[1:] {
		for n := range insertColumns {
			if c := &insertColumns[n]; !c.own && !c.same(&rows[i], &rows[i+1]) {
				return false
			}
		}
	}
	return len(rows) > 1
}

// TenantsFull says that enough tenants are entered to know that there are many; further ones are not. Rows are never
// deleted, so a reader that sees an event of a tenant without a row finds the table full as well.
const TenantsFull = `(SELECT count(*) >= 1000 FROM (SELECT FROM {schema}.outbox_tenant LIMIT 1000) entered)`

// enterTenants enters tenants in the order of their names, so that no two flushes wait for each other. A
// flush does not wait for an open transaction that has entered the same tenant: it leaves the tenant to
// that transaction. The tenants share 256 locks.
const enterTenants = `,
t AS (
	INSERT INTO {schema}.outbox_tenant (tenant_id)
	SELECT n.tenant_id FROM (SELECT DISTINCT tenant_id FROM i WHERE NOT ` + TenantsFull + ` ORDER BY tenant_id) n
	WHERE pg_try_advisory_xact_lock($1::int # 1, hashtext(n.tenant_id) & 255) ON CONFLICT DO NOTHING)`

// makeInserts makes statements that take the locks of the ordering keys, then draw the numbers.
//
// Without the locks, two transactions of one key could draw 7 and 8 and commit as 8, 7; a relay that looks in between
// publishes 8 first. The first row of VALUES takes the locks: PostgreSQL computes all values of a row, also of a column that only the condition
// reads, before it computes the DEFAULT of the row, which draws the number. A join with a subquery that takes them would need two nodes more, and a
// sort to be sure of the order: a fifth of what the statement costs the server. The locks are held to the end of the transaction.
//
// pg_current_xact_id goes back to the unit of work: proof that the transaction is alive, and the name by which a lost
// COMMIT is looked up. COMMIT may be on its way already when the answer is read, so the statement itself has to fail
// where a trigger of somebody else's drops rows: no number looks like that text.
func makeInserts(enter string, alike bool) *insertStatements {
	s := &insertStatements{}
	value, locks := map[string]string{}, manyLocks
	if alike {
		locks = oneLock // of the ordering key that they share
	}
	for _, c := range insertColumns {
		if alike && !c.own {
			s.shared = append(s.shared, c)
			value[c.name] = fmt.Sprintf("$%d::%s", 3+len(s.shared), c.typ)
		} else {
			s.mine = append(s.mine, c)
			value[c.name] = "u." + c.name
		}
	}
	next := 4 + len(s.shared)
	var mine, arrays []string
	for i, c := range s.mine {
		mine = append(mine, c.name)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", next+i, c.typ))
	}
	s.texts[0] = `
WITH l AS MATERIALIZED (
	SELECT n, ` + moved + ` AS moved FROM (` + takeLocks + `) taken),
i AS (
	` + insertInto(value, "l.moved") + ` FROM l CROSS JOIN unnest(` + strings.Join(arrays, ", ") + `) WITH ORDINALITY u(` + strings.Join(mine, ", ") + `, ord)
	WHERE l.n >= 0 ORDER BY u.ord` + returning("id, seq", enter) + storedRows
	for k := 1; k <= maxValues; k++ {
		rows, taken := make([]string, k), locks
		for row := range rows {
			params := make([]string, len(s.mine))
			for i, c := range s.mine {
				params[i] = fmt.Sprintf("$%d::%s", next+row*len(s.mine)+i, c.typ)
			}
			rows[row] = fmt.Sprintf("(%s, %s)", strings.Join(params, ", "), taken)
			taken = "true"
		}
		s.texts[k] = `
WITH i AS (
	` + insertInto(value, moved) + ` FROM (VALUES ` + strings.Join(rows, ", ") + `) u(` + strings.Join(mine, ", ") + `, taken)
	WHERE u.taken` + returning("id, seq", enter) + storedRows
	}
	if !alike {
		s.texts[1] = insertOne(enter)
	}
	return s
}

const (
	// oneLock and manyLocks take the locks, and are true. An event without an ordering key has none.
	oneLock   = `pg_advisory_xact_lock($1::int, $2::int) IS NOT NULL OR $2::int IS NULL`
	manyLocks = `(` + takeLocks + `) >= 0`
	takeLocks = `SELECT count(pg_advisory_xact_lock($1::int, b)) AS n FROM unnest($2::int[]) b`

	// moved says that a tenant has moved to another group at some time. It is computed under the locks, and sees what was committed since the
	// statement began.
	moved = `pg_sequence_last_value('{schema}.outbox_moves') IS NOT NULL`
)

// insertInto begins an INSERT of the values of the columns.
func insertInto(value map[string]string, moved string) string {
	names, values := make([]string, len(insertColumns)), make([]string, len(insertColumns))
	for i, c := range insertColumns {
		names[i], values[i] = c.name, value[c.name]
		if c.name == "lane" { // the caller knows a row's lane within its group, and only the holder of the locks knows the group
			values[i] = fmt.Sprintf("CASE WHEN %s THEN ({schema}.outbox_first_lane(%s) + %s)::smallint ELSE %[3]s END",
				moved, value["tenant_id"], value["lane"])
		}
	}
	return "INSERT INTO {schema}.outbox (" + strings.Join(names, ", ") + ")\n	SELECT " + strings.Join(values, ", ")
}

// insertOne is the statement for a single event. VALUES of one row would be folded into the SELECT, where the number is computed first. The condition
// reads no row, so PostgreSQL computes it once, before all values. The id is known, so only the number goes back. The transaction keeps the planner
// from computing the text, which fails, when it knows the parameters.
func insertOne(enter string) string {
	value := map[string]string{}
	for i, c := range insertColumns {
		value[c.name] = fmt.Sprintf("$%d::%s", 4+i, c.typ)
	}
	return `
WITH i AS (
	` + insertInto(value, moved) + `
	WHERE ` + oneLock + returning("seq", enter) + `
SELECT pg_current_xact_id()::text, coalesce((SELECT seq FROM i),
	('outbox: of ' || $3::int || ' events were stored 0 by the transaction ' || pg_current_xact_id()::text)::int)::text`
}

// returning ends the INSERT.
func returning(columns, enter string) string {
	if enter != "" {
		columns += ", tenant_id"
	}
	return "\n	RETURNING " + columns + ")" + enter
}

// storedRows ends a statement with the ids and numbers of the rows that it has stored, all or none.
const storedRows = `
SELECT pg_current_xact_id()::text, CASE WHEN count(*) = $3::int THEN string_agg(id::text || ' ' || seq, ' ')
	ELSE ('outbox: of ' || $3::int || ' events were stored ' || count(*))::int::text END
FROM i`

// Insertion returns the statement that stores evs, and its parameters. known says that the tenants need not be entered.
func Insertion(l *Layout, evs []event.Envelope, known bool) (statement string, args []any, err error) {
	args = make([]any, 3, 3+len(evs)*len(insertColumns))
	rows, locks := make([]Row, len(evs)), make([]int32, 0, len(evs)) // not nil: NULL would be no array
	for i, key := range envelope.StoredKeys(evs) {
		r := &rows[i]
		var lock int32
		*r, lock = newRow(l, &evs[i], key)
		if i > 0 && maps.Equal(r.Metadata, rows[i-1].Metadata) {
			r.encoded = rows[i-1].encoded // as most events of a unit have the request's
		} else if r.encoded, err = encodeMetadata(r.Metadata); err != nil {
			return "", nil, fmt.Errorf("outbox: encode metadata of %s %s: %w", r.Type, r.ID, err)
		}
		if lock >= 0 {
			locks = append(locks, lock)
		}
	}
	same := alike(rows)
	args[0], args[1], args[2] = l.LockSpace, sortedLocks(locks), len(evs)
	if len(evs) == 1 || same && len(evs) <= maxValues {
		args[1] = onlyLock(locks)
	}
	insert := inserts[[2]bool{!known, same}]
	for _, c := range insert.shared {
		args = append(args, c.value(&rows[0]))
	}
	if len(evs) > maxValues {
		for _, c := range insert.mine {
			args = append(args, c.values(rows))
		}
		return insert.texts[0], args, nil
	}
	for i := range rows {
		for _, c := range insert.mine {
			args = append(args, c.value(&rows[i]))
		}
	}
	return insert.texts[len(evs)], args, nil
}

// onlyLock returns the lock of a single event, or of several events that share it; nil if they take none.
func onlyLock(locks []int32) any {
	if len(locks) == 0 {
		return nil
	}
	return locks[0]
}

// newRow returns an event in its stored form, without its encoded metadata, and the lock of its ordering key, as
// Place does.
func newRow(l *Layout, e *event.Envelope, key string) (r Row, lock int32) {
	r.Envelope, r.Key = *e, key
	r.Lane, lock = l.Place(r.Key, r.ID)
	r.SchemaVersion = max(r.SchemaVersion, 1)
	r.Delivery.MaxAttempts = min(r.Delivery.MaxAttempts, math.MaxInt16)
	if r.Payload == nil {
		r.Payload = []byte{} // nil would be NULL
	}
	return r, lock
}

// encodeMetadata returns m as JSON, with its keys in order. encoding/json would take a dozen objects for it.
func encodeMetadata(m event.Metadata) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	var few [8]string
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var err error
	buf := make([]byte, 0, 256)
	for _, k := range keys {
		if buf, err = appendJSON(append(buf, ','), k); err != nil {
			return "", err
		}
		if buf, err = appendJSON(append(buf, ':'), m[k]); err != nil {
			return "", err
		}
	}
	buf[0] = '{'
	return string(append(buf, '}')), nil
}

// appendJSON appends a string as JSON.
func appendJSON(buf []byte, s string) ([]byte, error) {
	if !strings.ContainsFunc(s, escaped) {
		return append(append(append(buf, '"'), s...), '"'), nil
	}
	quoted, err := json.Marshal(s)
	return append(buf, quoted...), err
}

// escaped reports whether a character is not plain ASCII, or a character that JSON escapes (RFC 8259, section 7).
func escaped(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
