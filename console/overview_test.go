package console_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// went enters minutes into the history of the outbox, or of a consumer: waiting events, or handled messages.
func (s *shop) went(part, consumer string, from, to, number int) {
	s.t.Helper()
	_, err := s.DB.ExecContext(s.t.Context(), `INSERT INTO oncebox_history (part, at, consumer, waiting, dead, failing, oldest, came, went, failed, counted)
		SELECT ?0, date_trunc('minute', clock_timestamp()) - n * interval '1 minute', ?1, ?4, 0, 0, 90, 120, ?4, 1, 60
		FROM generate_series(?3::int, ?2::int) n
		ON CONFLICT (part, at, consumer) DO UPDATE SET went = excluded.went, failed = excluded.failed, counted = excluded.counted`,
		part, consumer, from, to, number)
	require.NoError(s.t, err)
}

// waited enters how many events or messages waited in the last minutes, the last one in the present minute.
func (s *shop) waited(part, consumer string, minutes ...int) {
	s.t.Helper()
	for n, waiting := range minutes {
		_, err := s.DB.ExecContext(s.t.Context(), `INSERT INTO oncebox_history (part, at, consumer, waiting)
			SELECT ?0, date_trunc('minute', clock_timestamp()) - ?2::int * interval '1 minute', ?1, ?3
			ON CONFLICT (part, at, consumer) DO UPDATE SET waiting = excluded.waiting`, part, consumer, len(minutes)-1-n, waiting)
		require.NoError(s.t, err)
	}
}

// The overview draws an hour or a day, with the numbers in words, and what is not known as a gap.
func TestOverviewDrawsTheHistory(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	empty := b.page("")
	require.Contains(t, empty.text(), "last not known")
	require.NotContains(t, empty.text(), "rising")

	s.went("outbox", "", 50, 30, 7)
	s.went("outbox", "", 8, 4, 3)
	s.went("inbox", "billing", 7, 7, 600) // one minute, or it would depend on the clock how many fall into a bar of three
	for n := range 10 {
		s.place(strings.Repeat("o", n+1))
	}
	hour := b.page("")
	require.Regexp(t, `10 wait to be published, the oldest for \d+ m?s `, hour.text())
	require.NotContains(t, hour.text(), "rising", "minutes are missing")
	require.Contains(t, hour.body, `aria-label="Events waiting. wait: last 3 at `)
	require.Contains(t, hour.body, "at most 7 at ")
	require.Contains(t, hour.body, `<title>`)
	require.Contains(t, hour.text(), ": 3 wait")
	require.Contains(t, hour.text(), "2/s stored")
	require.Equal(t, 4, strings.Count(hour.body, `<figure class="chart">`))
	// Between the two times in which the figures were read, behind the last and before the first one.
	_, picture, found := strings.Cut(hour.body, `aria-label="Events waiting.`)
	require.True(t, found)
	picture, _, found = strings.Cut(picture, "</svg>")
	require.True(t, found)
	require.Equal(t, 3, strings.Count(picture, `class="gap"`))
	require.NotContains(t, hour.body, "<script")

	_, err := s.DB.ExecContext(t.Context(), "UPDATE oncebox_history SET failing = 760 WHERE part = 'inbox'")
	require.NoError(t, err)
	require.Regexp(t, "ordering keys that fail at consumers last 760 .*at most 760", b.page("").text())

	day := b.page("?span=24h")
	require.Contains(t, day.body, `aria-current="page">24 hours`)
	require.Contains(t, day.links("./?span"), "./?span=24h")
	require.Contains(t, b.page("?span=year").body, `aria-current="page">1 hour`, "a span that does not exist is the default")

	s.waited("outbox", "", 2, 4, 6, 8, 10)
	require.Regexp(t, `10 wait to be published, the oldest for \d+ m?s ?, rising`, b.page("").text())
	s.waited("outbox", "", 30, 24, 18, 6, 10)
	require.NotContains(t, b.page("").text(), "falling", "it grows by now")

	s.failing.Store(true) // a consumer is listed when messages of it wait
	s.DrainFailing()
	require.Contains(t, b.page("").body, `aria-label="billing. `)
	require.Contains(t, b.page("").text(), "600 handled, 1 failed")
}

// The page of the processes says who runs what, and which broker fails since when. The overview names the broker, the relay and the error.
func TestProcessesAndTheirBroker(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	for _, statement := range []string{
		`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, broker, seen_until) VALUES
			(gen_random_uuid(), 'vm-16159', 'vm', 'shop', 'v2.1.0', 'v0.1.0', 'relay cleaner', 'relay-16159', 'Pulsar', now() + interval '1 minute'),
			(gen_random_uuid(), 'vm-1', 'vm', 'shop', '', '', 'consumers', '', '', now() - interval '10 minutes')`,
		`INSERT INTO outbox_projector (owner, seen_until, error, failed_at, failing_since) VALUES
			('relay-16159', now() + interval '1 hour', 'context deadline exceeded', now() + interval '1 second', now() - interval '2 minutes')`,
		`UPDATE outbox_lane SET owner = 'relay-16159', lease_until = now() + interval '1 hour'`,
	} {
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	s.place("late")
	_, err := s.DB.ExecContext(t.Context(), "UPDATE outbox SET created_at = created_at - interval '2 minutes'")
	require.NoError(t, err)
	page := b.page("processes").text()
	for _, part := range []string{"vm-16159 shop in trouble relay cleaner", "64 lanes", "v2.1.0 oncebox v0.1.0", "vm-1 shop vanished"} {
		require.Contains(t, page, part)
	}
	require.Regexp(t, `Pulsar has failed since \d\d:\d\d:\d\d UTC: context deadline exceeded`, page)
	first := b.page("").text()
	require.Regexp(t, `Pulsar has taken nothing since \d\d:\d\d:\d\d UTC \(relay relay-16159\), `+
		`and events have waited for 2.min.*: context deadline exceeded`, first)
	require.Contains(t, first, "The process vm-1 has vanished")
}

// While the broker is away, one line says so, with what it means. The lines about single consumers and topics are below it, each of them once.
func TestABrokerThatIsAwayIsOneFinding(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.place("waits")
	for _, statement := range []string{
		`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, reporter, broker, seen_until) VALUES
			(gen_random_uuid(), 'web-1', 'vm', 'shop', '', '', 'relay', 'relay-1', NULL, 'Pulsar', now() + interval '1 hour'),
			(gen_random_uuid(), 'worker-1', 'vm', 'shop', '', '', 'consumers', '', '00000000-0000-0000-0000-000000000001', 'Pulsar',
				now() + interval '1 hour')`,
		`INSERT INTO outbox_projector (owner, seen_until, error, failed_at, failing_since) VALUES
			('relay-1', now() + interval '1 hour', 'web: connection refused', now() + interval '1 second', now() - interval '2 minutes')`,
		`UPDATE outbox_lane SET owner = 'relay-1', lease_until = now() + interval '1 hour'`,
		`DELETE FROM inbox_consumer`, `DELETE FROM inbox_topic`,
		`INSERT INTO inbox_consumer (consumer, beat_at) VALUES ('mailer', now())`,
		`INSERT INTO inbox_topic (topic, consumer, subscribed, error, failed_at) VALUES
			('order', 'mailer', true, 'no answer', now()), ('parcel', 'mailer', true, 'no answer', now())`,
		`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, progress_at, error, failed_at, seen_until)
			SELECT 'mailer', t, '00000000-0000-0000-0000-000000000001', 'worker-1', 'AWAY', now() - interval '100 seconds', 0, NULL,
				'worker: connection refused', now(), now() + interval '1 hour' FROM unnest(ARRAY['order', 'parcel']) t`,
	} {
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	page := b.page("")
	require.Regexp(t, `stop down Pulsar cannot be reached from web-1, worker-1 since \d\d:\d\d:\d\d UTC: nothing is published, 1 event waits; `+
		`consumers receive nothing\. The first error: web: connection refused Nothing is lost: events are stored, and leave by themselves `+
		`when the broker answers\. .*`+
		`3 lines follow from it`, page.text(), "it is the first line")
	require.Equal(t, 1, strings.Count(page.body, "mailer has had no connection to the broker at the topic order for"))
	require.Equal(t, 1, strings.Count(page.body, "mailer has had no connection to the broker at the topic parcel for"))
	findings, _, _ := strings.Cut(page.body, `aria-label="In numbers"`)
	require.Equal(t, 1, strings.Count(findings, `class="state `), "what follows from it is folded")
	require.Contains(t, page.text(), "mailer no connection")

	// A consumer that has a connection still receives something, so the others are findings of their own.
	_, err := s.DB.ExecContext(t.Context(), "UPDATE inbox_process SET state = 'CONNECTED' WHERE topic = 'parcel'")
	require.NoError(t, err)
	require.Regexp(t, `Pulsar has taken nothing since \d\d:\d\d:\d\d UTC: nothing is published, 1 event waits\. Reported by`, b.page("").text())
	_, err = s.DB.ExecContext(t.Context(), "UPDATE outbox_projector SET failing_since = NULL")
	require.NoError(t, err)
	text := b.page("").text()
	require.Contains(t, text, "down mailer has had no connection to the broker at the topic order for")
	require.NotContains(t, text, "nothing is published")

	// The broker is back. It is asked within seconds what waits there; only if it does not answer then, that is an alarm.
	_, err = s.DB.ExecContext(t.Context(), "UPDATE inbox_process SET state = 'CONNECTED', since = now()")
	require.NoError(t, err)
	text = b.page("").text()
	require.Contains(t, text, "wait How many messages wait for mailer at the broker is read again")
	require.NotContains(t, text, "nobody knows")
	_, err = s.DB.ExecContext(t.Context(), "UPDATE inbox_process SET since = now() - interval '2 minutes'")
	require.NoError(t, err)
	text = b.page("").text()
	require.Contains(t, text, "look mailer: nobody knows how many messages wait at the broker, because it has given no answer for a minute. It is asked again")
	require.NotContains(t, text, "read again")
}

// statements are the texts that were sent, with their arguments.
type statements struct {
	mu   sync.Mutex
	sent map[string]int
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := strings.TrimSpace(q.SQL); strings.HasPrefix(text, "SELECT") || strings.HasPrefix(text, "WITH") {
		s.sent[fmt.Sprint(text, q.Args)]++
	}
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// What the overview, its list of causes and its menu all need is read once.
func TestThePartsOfAPageShareWhatTheyRead(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.Migrated(t).DSN)
	require.NoError(t, err)
	seen := &statements{sent: map[string]int{}}
	cfg.Tracer = seen
	db := bun.NewDB(sql.OpenDB(pgsql.NewConnector(*cfg)), pgdialect.New())
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	page, err := console.New(db, byHeader, &console.Config{Outbox: outbox.NewStore(db, nil), Inbox: inbox.New(uow.New(db, nil), nil)})
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-Rights", "read")
	r.Header.Set("X-Actor", "bob")
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, r)
	require.Equal(t, http.StatusOK, answer.Code)
	for _, table := range []string{"outbox_projector r ON", "inbox_process ORDER BY consumer, topic", "inbox_topic WHERE subscribed", "AS seen"} {
		for text, n := range seen.sent {
			if strings.Contains(text, table) {
				require.Equal(t, 1, n, text)
			}
		}
	}
	require.Greater(t, len(seen.sent), 10)
}
