package adopt_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
)

// wire is a broker that takes everything.
type wire struct {
	mu    sync.Mutex
	taken []string
}

func (w *wire) Publish(_ context.Context, evs []event.Envelope) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range evs {
		w.taken = append(w.taken, string(evs[i].Payload))
	}
	return nil
}

func (w *wire) payloads() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.taken...)
}

// relay publishes what may be published now, by a relay that is made for this call. So it knows what is in the tables, and nothing else.
func (f *fixture) relay(w *wire, goOn ...string) {
	f.t.Helper()
	p, err := projector.New(w, &projector.Config{
		Lease: 30 * time.Minute, PublishTimeout: 10 * time.Minute, ContinueAfterDead: goOn,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}, f.store)
	require.NoError(f.t, err)
	for range 3 { // rows that become due while others leave
		require.NoError(f.t, p.RunOnce(f.t.Context()))
	}
}

// fresh records an event with new code.
func (f *fixture) fresh(key, payload string) {
	f.t.Helper()
	require.NoError(f.t, f.db.RunInTx(f.t.Context(), nil, func(ctx context.Context, tx bun.Tx) error { return f.addIn(ctx, tx, key, payload) }))
}

func (f *fixture) addIn(ctx context.Context, tx bun.Tx, key, payload string) error {
	_, err := f.store.Add(ctx, tx, "order", []byte(payload), event.WithAggregate("order", key, 0), event.WithType("order.changed"))
	return err
}

func (f *fixture) write(key string, payloads ...string) {
	f.t.Helper()
	for _, payload := range payloads {
		f.exec(`INSERT INTO old (order_id, payload) VALUES (?, ?)`, key, payload)
	}
}

// While rows are forwarded, a row that no event can be made of holds its key: later rows of old code and events of new code wait behind it, whichever
// relay comes. Its writer goes on, and so do other keys. An operator lets it go with another payload, or drops it.
func TestForwardedRowThatIsNoEventHoldsItsKey(t *testing.T) {
	for name, decide := range map[string]func(f *fixture, id string) (then []string){
		"it is mended": func(f *fixture, id string) []string {
			require.NoError(f.t, f.store.Dead().ReplayEdited(f.t.Context(), id, []byte("2"), operator.By{Actor: "ann", Reason: "mended"}))
			return []string{"2", "3", "4"}
		},
		"it is dropped": func(f *fixture, id string) []string {
			require.NoError(f.t, f.store.Dead().Discard(f.t.Context(), id, operator.By{Actor: "ann", Reason: "nobody needs it"}))
			return []string{"3", "4"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, orders)
			m := f.mover(mapOrders)
			require.NoError(t, m.Forward(t.Context()))
			w := &wire{}
			f.write("a", "1", "no json", "3")
			f.write("b", "9")
			f.fresh("a", "4")
			require.Zero(t, f.count("old WHERE sent_at IS NULL"), "the writers went on, and nothing is moved twice")
			f.relay(w)
			f.relay(w)
			require.ElementsMatch(t, []string{"1", "9"}, w.payloads())
			letters, err := f.store.Dead().List(t.Context(), operator.DeadFilter{}, nil, 0)
			require.NoError(t, err)
			require.Len(t, letters, 1)
			require.Contains(t, letters[0].Error, "payload_bytes is not valid JSON")
			require.True(t, letters[0].Holds)
			require.EqualValues(t, 0, f.once(m).Left)
			require.NoError(t, m.Forward(t.Context()), "a dead letter is not in the way of another mapping")
			then := decide(f, letters[0].ID)
			f.relay(w)
			require.Equal(t, then, w.payloads()[2:])
		})
	}
}

// On topics that go on after a dead letter, the key goes on.
func TestForwardedRowThatIsNoEventOnATopicThatGoesOn(t *testing.T) {
	f := newFixture(t, orders)
	require.NoError(t, f.mover(mapOrders).Forward(t.Context()))
	w := &wire{}
	f.write("a", "1", "no json", "3")
	f.fresh("a", "4")
	f.relay(w, "order")
	require.Equal(t, []string{"1", "3", "4"}, w.payloads())
}

// Whatever is wrong with a row, it is kept as a dead letter, and its writer goes on. What the mover finds in a table that is forwarded becomes the same.
func TestForwardKeepsEachRow(t *testing.T) {
	const ddl = `CREATE TABLE old (nr bigserial PRIMARY KEY, id text, topic text, order_id text, payload text, metadata text, version text, at timestamptz,
		held bool NOT NULL DEFAULT false)`
	const mapping = `{table: old, id: "{id}", topic: "{topic}", aggregate_type: order, aggregate_id: "{order_id}", aggregate_version: "{version}",
		payload: "{payload}", metadata: "{metadata}", headers: {n: "{nr}"}, occurred_at: "{at}", order: [nr],
		where: "NOT held AND (payload IS NULL OR payload !~ '^\\d+$' OR payload::int > 0)", delete: true}`
	rows := map[string]string{
		`'1', 'order', 'a', 'no json'`:                           "payload_bytes is not valid JSON",
		`NULL, 'order', 'a', '1'`:                                "the id is NULL or empty",
		`'', 'order', 'a', '1'`:                                  "the id is NULL or empty",
		`'2', NULL, 'a', '1'`:                                    "topic is empty",
		`'3', 'a/b', 'a', '1'`:                                   "topic must not contain",
		`'4', repeat('t', 300), 'a', '1'`:                        "topic has more than 255 bytes",
		`'5', 'order', NULL, '1'`:                                "aggregate_id is empty",
		`'6', 'order', repeat('k', 3000), '1'`:                   "aggregate_id has more than 255 bytes",
		`'7', 'order', 'a', NULL`:                                "payload is NULL",
		`'8', 'order', 'a', '1', '3'`:                            "the metadata is not a JSON object",
		`'9', 'order', 'a', '1', '{"a":"b"'`:                     "the metadata is not a JSON object",
		`'10', 'order', 'a', '1', '{"k": "\u0000"}'`:             "the metadata is not a JSON object",
		`'11', 'order', 'a', '1', '{}', 'x'`:                     `invalid input syntax for type bigint: "x"`,
		`'12', 'order', 'a', '1', '{}', '-1'`:                    "aggregate_version is negative",
		`'13', 'order', 'a', '1', '{}', '1', '20000-01-01Z'`:     "occurred_at is not in the years",
		`'14', 'order', 'a', repeat('1', 20)`:                    "out of range for type integer",
		`'15', 'order', 'a', '"' || repeat('x', 1048576) || '"'`: "payload has 1048578 bytes",
	}
	f := newFixture(t, ddl)
	m := f.mover(mapping)
	require.NoError(t, m.Forward(t.Context()))
	w := &wire{}
	insert := func(row, held string) {
		given := strings.Count(row, ", ") + 1 - strings.Count(row, "(")
		columns := strings.Join([]string{"id", "topic", "order_id", "payload", "metadata", "version", "at"}[:given], ", ")
		f.exec(`INSERT INTO old (` + columns + `, held) VALUES (` + row + `, ` + held + `)`)
	}
	for row := range rows {
		insert(row, "false")
		require.Zero(t, f.count("old"), "it is deleted, as all others")
	}
	f.relay(w, "*")
	require.Empty(t, w.payloads())
	var dead []string
	require.NoError(t, f.db.NewRaw("SELECT error_message FROM outbox_dead").Scan(t.Context(), &dead))
	for _, reason := range rows {
		require.Contains(t, strings.Join(dead, "\n"), reason)
	}
	require.Equal(t, len(rows), f.count("outbox_dead WHERE octet_length(coalesce(ordering_key, '')) < 256"))
	require.Equal(t, len(rows), f.count("(SELECT DISTINCT event_metadata::json ->> 'n' FROM outbox_dead) x"))
	require.Equal(t, 3, f.count("outbox_dead WHERE event_metadata LIKE '%oncebox.metadata%'"))

	// The same rows, which the trigger has left out at first.
	f.exec("TRUNCATE outbox_dead")
	for row, reason := range rows {
		if !strings.Contains(reason, "out of range") { // the mover cannot read such a row, and says so
			insert(row, "true")
		}
	}
	f.exec("UPDATE old SET held = false")
	n := int64(len(rows) - 1)
	require.Equal(t, adopt.Summary{Moved: n, Dead: n}, f.once(m))
	require.Zero(t, f.count("old"))
	f.relay(w, "*")
	require.Empty(t, w.payloads())
	require.EqualValues(t, n, f.count("outbox_dead"))
}

// Rows behind such a row in the batch of a mover come after it.
func TestMoverHoldsTheKeyOfAForwardedTable(t *testing.T) {
	f := newFixture(t, orders)
	m := f.moverOf(f.mapping(mapOrders), &adopt.Config{BatchSize: 10})
	require.NoError(t, m.Forward(t.Context()))
	f.exec(`INSERT INTO old (order_id, payload, sent_at) VALUES ('a', '1', now()), ('a', 'bad', now()), ('a', '3', now()), ('b', '4', now())`)
	f.exec(`UPDATE old SET sent_at = NULL`)
	require.Equal(t, adopt.Summary{Moved: 4, Dead: 1}, f.once(m))
	require.Equal(t, []string{"1", "4", "bad", "3"}, f.events("convert_from(payload, 'UTF8')"))
	w := &wire{}
	f.relay(w)
	require.ElementsMatch(t, []string{"1", "4"}, w.payloads())
}

// A relay, a mover and writers are killed while rows that are no events come, again and again. No row passes such a row of its key, and none is lost.
func TestKeysAreHeldThroughKills(t *testing.T) {
	f := newFixture(t, orders)
	require.NoError(t, f.mover(mapOrders).Forward(t.Context()))
	pool := f.db.Another(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w := &wire{}
	quiet := telemetry.Config{Logger: slog.New(slog.DiscardHandler)}
	second := &fixture{t, f.db, f.storeOf(pool, quiet)}
	p, err := projector.New(w, &projector.Config{Telemetry: quiet}, second.store)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	const keys, rows = 5, 12
	kills := 0
	for i := range rows {
		for k := range keys {
			payload := `{"k":` + string(rune('0'+k)) + `,"n":` + string(rune('a'+i)) + `}` // the letter is no JSON
			if i != rows/2 {
				payload = strings.Replace(payload, string(rune('a'+i)), `"`+string(rune('a'+i))+`"`, 1)
			}
			f.write(string(rune('0'+k)), payload)
		}
		kills += f.count(`(SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'outbox'::regclass AND pid <> pg_backend_pid()) killed`)
	}
	await.True(t, func() bool { return f.count("outbox_dead") == keys }, "the row of each key dies")
	await.True(t, func() bool { return f.count("outbox_unsent") == 0 }, "the rest is published, or waits")
	stop()
	<-ended
	last := map[byte]string{}
	for _, payload := range w.payloads() {
		require.Less(t, payload, `{"k":`+payload[5:6]+`,"n":"`+string(rune('a'+rows/2)), "nothing passes the row that died")
		if payload > last[payload[5]] {
			last[payload[5]] = payload
		}
	}
	require.Len(t, last, keys)
	require.Equal(t, keys*(rows-rows/2-1), f.count("outbox_held"))
	t.Logf("%d sessions were killed", kills)
}
