package dead_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/outbox/dead"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// ann is an operator.

// walk reads all pages and returns the types of the letters.
func (f *fixture) walk(filter operator.DeadFilter, limit int) (types []string) {
	f.T.Helper()
	var after *outbox.DeadLetter
	for {
		page, err := f.Dead().List(f.T.Context(), filter, after, limit)
		require.NoError(f.T, err)
		require.LessOrEqual(f.T, len(page), limit)
		if len(page) == 0 {
			return types
		}
		for _, d := range page {
			types = append(types, d.Type)
		}
		after = &page[len(page)-1]
	}
}

func TestDeadLettersAreFilteredAndPaged(t *testing.T) {
	f := newFixture(t, nil)
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	errs := map[string]string{}
	for i := range 12 {
		name := fmt.Sprintf("t%02d", i)
		_, err := pgtest.Add(t.Context(), f.DB.DB, f, []string{"order", "invoice"}[i%2], []byte("x"), event.WithType(name),
			event.WithAggregate("order", name, 1), event.WithTenantID([]string{"acme", "globex", "initech"}[i%3]))
		require.NoError(t, err)
		errs[name] = fmt.Sprintf("refused: code %d", i/4)
	}
	f.Kill(errs)
	for i := range 12 { // four at each of three moments, so that pages end among equals
		f.Exec("UPDATE outbox_dead SET died_at = ? WHERE event_type = ?", day.AddDate(0, 0, i/4), fmt.Sprintf("t%02d", i))
	}
	for name, c := range map[string]struct {
		filter operator.DeadFilter
		want   func(i int) bool
	}{
		"all":      {operator.DeadFilter{}, func(int) bool { return true }},
		"tenant":   {operator.DeadFilter{TenantID: "globex"}, func(i int) bool { return i%3 == 1 }},
		"topic":    {operator.DeadFilter{Topic: "invoice"}, func(i int) bool { return i%2 == 1 }},
		"type":     {operator.DeadFilter{Type: "t07"}, func(i int) bool { return i == 7 }},
		"error":    {operator.DeadFilter{Error: "code 1"}, func(i int) bool { return i/4 == 1 }},
		"from":     {operator.DeadFilter{DiedFrom: day.AddDate(0, 0, 1)}, func(i int) bool { return i/4 >= 1 }},
		"before":   {operator.DeadFilter{DiedBefore: day.AddDate(0, 0, 1)}, func(i int) bool { return i/4 < 1 }},
		"several":  {operator.DeadFilter{TenantID: "acme", Topic: "order", DiedFrom: day.AddDate(0, 0, 1)}, func(i int) bool { return i == 6 }},
		"consumer": {operator.DeadFilter{Consumer: "billing"}, func(int) bool { return false }},
		"none":     {operator.DeadFilter{TenantID: "nobody"}, func(int) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for i := range 12 {
				if c.want(i) {
					want = append(want, fmt.Sprintf("t%02d", i))
				}
			}
			for _, limit := range []int{1, 3, 100} {
				got := f.walk(c.filter, limit)
				age := func(name string) int { return (int(name[1]-'0')*10 + int(name[2]-'0')) / 4 }
				require.True(t, slices.IsSortedFunc(got, func(a, b string) int { return age(a) - age(b) }), "oldest first: %v", got)
				require.ElementsMatch(t, want, got, "pages of %d", limit)
			}
			n, err := f.Dead().Count(t.Context(), c.filter)
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
		})
	}
}

func TestFilterOfDeadLettersIsValidated(t *testing.T) {
	f := newFixture(t, nil)
	at := time.Now()
	bad := operator.DeadFilter{TenantID: "a\x00", ID: "a", DiedFrom: at, DiedBefore: at}
	require.ErrorContains(t, bad.Validate(), "DeadFilter.TenantID")
	require.ErrorContains(t, bad.Validate(), "DeadFilter.DiedFrom")
	require.ErrorContains(t, bad.Validate(), "DeadFilter.ID")
	_, err := f.Dead().List(t.Context(), bad, nil, 1)
	require.ErrorIs(t, err, event.ErrInvalid)
	_, err = f.Dead().Count(t.Context(), bad)
	require.ErrorIs(t, err, event.ErrInvalid)
	_, err = f.Dead().ReplayAll(t.Context(), bad, ann, nil)
	require.ErrorIs(t, err, event.ErrInvalid)
}

// Whatever the text is, it is stored, listed, and found by itself: no wildcard, quote or escape of it means anything.
func TestErrorTextsMayContainAnything(t *testing.T) {
	f := newFixture(t, nil)
	texts := map[string]string{
		"quote": `it's "refused"; DROP TABLE outbox_dead; --`, "wild": `100%_off\`, "bytes": "a\x00b\xff\xfec", "dollar": "$1 $$ %s {schema}.",
		"lines": "line\r\n\tline", "world": "ü✓ \u65e5\u672c \u202e", "empty": "",
	}
	for name := range texts {
		f.Record(name, name)
	}
	f.Kill(texts)
	for name, text := range texts {
		if name == "empty" {
			continue
		}
		require.Equal(t, []string{name}, f.walk(operator.DeadFilter{Error: text}, 10), "%q", text)
	}
	require.Equal(t, []string{"wild"}, f.walk(operator.DeadFilter{Error: `%_`}, 10))
	letters, err := f.Dead().List(t.Context(), operator.DeadFilter{Type: "quote"}, nil, 1)
	require.NoError(t, err)
	require.Equal(t, texts["quote"], letters[0].Error)
}

func TestOneDeadLetterIsShownWhole(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1")
	_, err := f.Dead().Show(t.Context(), id)
	require.ErrorIs(t, err, operator.ErrNotDead, "it is alive")
	_, err = f.Dead().Show(t.Context(), "'; --")
	require.ErrorIs(t, err, operator.ErrNotDead)
	f.Kill(map[string]string{"a1": "no"})
	d, err := f.Dead().Show(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{id, "a1", "no", []byte("a1"), "default|order|a", 1}, []any{d.ID, d.Type, d.Error, d.Payload, d.Key, d.RetryCount})
	require.False(t, d.DiedAt.IsZero())
	list, err := f.Dead().List(t.Context(), operator.DeadFilter{}, nil, 0)
	require.NoError(t, err)
	require.Nil(t, list[0].Payload, "a list carries no payloads")
	d.Payload = nil
	require.Equal(t, d, list[0], "and is complete otherwise")
}

// What waits behind a letter is found by its key, among very many other events that wait.
func TestEventsBehindALetter(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec(`INSERT INTO outbox_dead (seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes, aggregate_type, aggregate_id,
			content_type, event_metadata, lane, tenant_id, topic, event_type, source, payload, died_at, error_message, ordering_key)
		SELECT n, ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(), now(), 0, 1, 1, 0, '', '', '', '{}', n % 64, 'default', 'order', 'o',
			's', '', now(), 'no', 'k' || n FROM generate_series(1, 5000) n`)
	f.Exec(`INSERT INTO outbox_held (seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes, aggregate_type, aggregate_id,
			content_type, event_metadata, lane, tenant_id, topic, event_type, source, payload, ordering_key, retry_after)
		SELECT 10000 + n, gen_random_uuid(), now(), now(), 0, 1, 0, 0, '', '', '', '{}', n % 64, 'default', 'order', 'o' || n, 's', '', 'k' || n % 6400,
			'infinity' FROM generate_series(1, 30000) n`)
	f.Exec("VACUUM ANALYZE outbox_held")
	f.Exec("VACUUM ANALYZE outbox_dead")
	const id = "00000000-0000-7000-8000-000000000070"
	rows, err := f.Dead().Behind(t.Context(), id, 3, dead.OfTenant("default"))
	require.NoError(t, err)
	var types []string
	for _, r := range rows {
		types = append(types, r.Type)
	}
	require.Equal(t, []string{"o70", "o6470", "o12870"}, types, "in their order")
	rows, err = f.Dead().Behind(t.Context(), id, 3, dead.OfTenant("globex"))
	require.NoError(t, err)
	require.Empty(t, rows)
	_, err = f.Dead().Behind(t.Context(), "no id", 3)
	require.ErrorIs(t, err, operator.ErrNotDead)
	statement := fmt.Sprintf(dead.HeldBehind, "d.id = '"+id+"'", "100")
	plan := f.ExplainOnce(f.Text(statement))
	require.Contains(t, plan, "outbox_held_key")
	require.NotContains(t, plan, "Seq Scan")
}

func TestErrorsOfTheLatestDeadLetters(t *testing.T) {
	f := newFixture(t, nil)
	long := strings.Repeat("é", 400)
	f.Record("a", "a1")
	f.Kill(map[string]string{"a1": "first"})
	f.Record("b", "b1")
	f.Kill(map[string]string{"b1": long})
	list, err := f.Dead().Errors(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"b1", long[:600], "order", "default"}, []string{list[0].Type, list[0].Error, list[0].Topic, list[0].TenantID})
	require.Equal(t, "first", list[1].Error)
	require.False(t, list[0].DiedAt.Before(list[1].DiedAt))
	list, err = f.Dead().Errors(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, list, 1, "the newest")
	require.Equal(t, "b1", list[0].Type)
}

// A million would take a minute; at 200,000 the planner already finds every other way cheaper than a scan if there is no
// index, so the plans are those of larger tables.
func TestListsOfManyDeadLettersUseTheirIndexes(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec(`INSERT INTO outbox_dead (` + deadInsertColumns + `) ` + fmt.Sprintf(deadInsertRows, 200000))
	f.Exec(`INSERT INTO oncebox_audit (part, actor, action, event_id, tenant_id, topic, event_type)
		SELECT 'outbox', 'ann', 'replay', id, tenant_id, topic, event_type FROM outbox_dead LIMIT 20000`)
	f.Exec("ANALYZE outbox_dead; ANALYZE oncebox_audit")
	page, err := f.Dead().List(t.Context(), operator.DeadFilter{}, nil, 1)
	require.NoError(t, err)
	middle := &page[0]
	middle.DiedAt = middle.DiedAt.Add(1000 * time.Second)
	for index, filter := range map[string]operator.DeadFilter{
		"outbox_dead_order":  {},
		"outbox_dead_tenant": {TenantID: "tenant-7"},
		"outbox_dead_topic":  {Topic: "topic-7"},
		"outbox_dead_type":   {Type: "type-7"},
		"outbox_dead_cause":  {Fingerprint: "f7"},
	} {
		for _, after := range []*dead.Letter{nil, middle} {
			for _, from := range []time.Time{{}, middle.DiedAt.Add(time.Second)} {
				filter.DiedFrom = from
				statement, args := f.Dead().Page(filter, after, 50)
				plan := f.ExplainOnce(statement, args...)
				require.Contains(t, plan, "Index Scan using "+index+" on outbox_dead", "%+v\n%s", filter, plan)
				require.NotContains(t, plan, "Sort", "%+v\n%s", filter, plan)
			}
		}
	}
	explainPick := func(filter operator.DeadFilter, after outboxdb.RowID, n int) string {
		statement, args := f.Dead().Pick(filter, after, n)
		return f.ExplainOnce(statement, args...)
	}
	plan := explainPick(operator.DeadFilter{DiedBefore: time.Now().AddDate(1, 0, 0)}, outboxdb.RowID{Lane: 7, Seq: 1000}, 500)
	require.Contains(t, plan, "Index Scan using outbox_dead_pkey", plan)
	require.NotContains(t, plan, "Sort", plan)
	plan = explainPick(operator.DeadFilter{DiedBefore: middle.DiedAt.AddDate(-1, 0, 0)}, outboxdb.RowID{Lane: -1}, 500)
	require.Contains(t, plan, "Index Scan using outbox_dead_order", "the retention finds that there is nothing\n%s", plan)
	plan = f.ExplainOnce(dead.ListErrors, 500)
	require.Contains(t, plan, "Index Scan Backward using outbox_dead_order", plan)
	require.NotContains(t, plan, "Sort", plan)
	statement, args, err := (&audit.Log{Part: operator.PartOutbox, Run: f.Handle().AdHoc()}).Page(operator.AuditFilter{EventID: middle.ID}, nil, 10)
	require.NoError(t, err)
	plan = f.ExplainOnce(statement, args...)
	require.Contains(t, plan, "oncebox_audit_event", plan)
	plan = explainPick(operator.DeadFilter{ID: middle.ID}, outboxdb.RowID{Lane: -1}, 2)
	require.Contains(t, plan, "outbox_dead_id", plan)
}

// The tables of held rows and blocks are nearly empty until a replay, and the planner does not know yet of
// the new rows.
func TestReplayOfManyUsesTheIndexesOfTablesThatWereEmpty(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec("ALTER TABLE outbox_held SET (autovacuum_enabled = false)")
	f.Exec(`INSERT INTO outbox_dead (` + deadInsertColumns + `) ` + fmt.Sprintf(deadInsertRows, 20000))
	f.Exec("UPDATE outbox_dead SET died_at = died_at - interval '1 day'; ANALYZE outbox_dead")
	_, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, nil)
	require.NoError(t, err)
	rows, err := lanedb.Of(f.Handle()).Held.Queue(t.Context(), 7, "k7", 0)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	lanes := []int16{7}
	move := f.ExplainOnce(dead.ReplayDead, "ann", string(operator.Replay), "", lanes, []int64{rows[0].Sequence})
	wake := f.ExplainOnce(dead.WakeHeads, lanes, []string{"k7"})
	for _, plan := range []string{move, wake} {
		require.Contains(t, plan, "Index Scan using outbox_held_key on outbox_held x", plan)
		require.Contains(t, plan, "Index Scan using outbox_held_pkey on outbox_held h", plan)
	}
}

const (
	deadInsertColumns = `seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes, tenant_id, topic,
		ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, died_at, error_message, fingerprint`
	// deadInsertRows makes dead letters, one a second, of 100 tenants, 400 topics, 400 types and 10,000 keys.
	deadInsertRows = `SELECT i, gen_random_uuid(), now(), now(), 0, 1, i %% 10000 %% 64, 5, 0, 'tenant-' || i / 7 %% 100, 'topic-' || i / 3 %% 400,
		'k' || i %% 10000, 'order', i::text, 'type-' || i / 11 %% 400, 'test', 'text/plain', '{}', 'x', now() - interval '20 days' + i * interval '1 s',
		'refused: no schema for event ' || i, 'f' || i / 11 %% 400 FROM generate_series(1, %d) i`
)
