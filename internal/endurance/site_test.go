//go:build unix && nightly

package endurance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// keys is how many ordering keys there are.
const keys = 100

// site is where consumers are at work: a database, a topic, and a publisher.
type site struct {
	t      *testing.T
	db     *pgtest.DB
	units  *uow.Manager
	broker *pulsar.Broker
	topic  string

	published atomic.Int64 // messages that the broker confirmed; key and number of each follow from it
}

const tables = `
CREATE TABLE effects (nth bigserial PRIMARY KEY, key text NOT NULL, n int NOT NULL, process text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON effects (key, n);

-- What was ever parked, and whether it had its effect before.
CREATE TABLE parkings (key text NOT NULL, n bigint NOT NULL, late bool NOT NULL);
CREATE FUNCTION note_parking() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
	INSERT INTO parkings SELECT NEW.aggregate_id, NEW.aggregate_version, EXISTS (
		SELECT FROM effects WHERE key = NEW.aggregate_id AND n = NEW.aggregate_version);
	RETURN NEW;
END $f$;
CREATE TRIGGER note_parking BEFORE INSERT ON inbox_parked FOR EACH ROW EXECUTE FUNCTION note_parking();`

// newSite makes the tables, and a topic of four partitions with the subscription of the consumers.
func newSite(t *testing.T, server *devenv.PulsarServer) *site {
	t.Helper()
	s := &site{t: t, db: pgtest.Migrated(t), topic: "endurance-" + strings.ToLower(rand.Text()[:10])}
	_, err := s.db.ExecContext(t.Context(), tables)
	require.NoError(t, err)
	s.takeOut(os.Getenv("ENDURANCE_WITHOUT"))
	s.units = uow.New(s.db.DB, &uow.Config{Source: "endurance", Telemetry: telemetry.Config{Logger: quiet()}})
	s.broker, err = pulsar.Connect(t.Context(), &pulsar.Config{
		URL: server.URL, AdminURL: server.AdminURL, Name: "test", Topics: []string{s.topic}, ConnectTimeout: time.Minute,
		Telemetry:     telemetry.Config{Logger: quiet()},
		Subscriptions: []messaging.Subscription{{Topic: s.topic, Name: consumerName}},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.broker.Close())
		_, err := server.Admin(context.Background(), http.MethodDelete, "/persistent/public/default/"+s.topic+"/partitions?force=true", "")
		require.NoError(t, err, "the topic is removed")
	})
	return s
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// takeOut removes a guard of the product: what the test then says shows that it looks at it.
func (s *site) takeOut(guard string) {
	s.t.Helper()
	code := map[string][2]string{
		"":       {},
		"commit": {}, // see countingReceiver
		"dedupe": {"IF NOT FOUND THEN", "IF false THEN"},
		"lock":   {"IF p_lock IS NOT NULL AND NOT pg_try_advisory_xact_lock", "IF false AND NOT pg_try_advisory_xact_lock"},
		"look":   {"IF p_lock IS NOT NULL AND EXISTS", "IF false AND EXISTS"},
	}
	parts, known := code[guard]
	require.True(s.t, known, "ENDURANCE_WITHOUT=%s: there is no such guard", guard)
	if parts[0] == "" {
		return
	}
	var source string
	require.NoError(s.t, s.db.NewRaw("SELECT pg_get_functiondef('inbox_enter(uuid,text,text,text,bigint,integer)'::regprocedure)").Scan(s.t.Context(), &source))
	require.Contains(s.t, source, parts[0])
	_, err := s.db.DB.DB.ExecContext(s.t.Context(), strings.Replace(source, parts[0], parts[1], 1))
	require.NoError(s.t, err)
}

// message is the i-th one from 0 on: keys take turns.
func (s *site) message(i int) event.Envelope {
	id := uuid.Must(uuid.NewV7())
	key := fmt.Sprintf("k%02d", i%keys)
	return event.Envelope{
		ID: id.String(), Type: "thing.happened", Source: "endurance", TenantID: "t1", Topic: s.topic, ContentType: "text/plain",
		AggregateType: "thing", AggregateID: key, AggregateVersion: int64(i/keys + 1), Sequence: int64(i + 1), RoutingKey: key,
		OccurredAt: time.Now(), Payload: []byte("happened"),
	}
}

// sent is how many messages each key had.
func (s *site) sent() map[string]int {
	all := map[string]int{}
	for i := range int(s.published.Load()) {
		all[fmt.Sprintf("k%02d", i%keys)]++
	}
	return all
}

// publish sends messages until there are so many, as a relay does: what is not confirmed goes again, with the same id, before
// anything else of its key.
func (s *site) publish(ctx context.Context, upTo int) error {
	var waiting []event.Envelope
	for i := int(s.published.Load()); i < upTo; i++ {
		waiting = append(waiting, s.message(i))
	}
	for len(waiting) > 0 {
		n := min(len(waiting), 500)
		err := s.publishSome(ctx, waiting[:n])
		if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
			var again []event.Envelope
			for i := range n {
				if partial.Failed[i] != nil {
					again = append(again, waiting[i])
				}
			}
			waiting = append(again, waiting[n:]...)
		} else if err == nil {
			waiting = waiting[n:]
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.published.Store(int64(upTo - len(waiting)))
	}
	return nil
}

func (s *site) publishSome(ctx context.Context, msgs []event.Envelope) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return s.broker.Publish(ctx, msgs)
}

// backlog is how far the publisher is ahead of the consumers.
const backlog = 1000

// load publishes all the time, not too far ahead of the consumers, until it is stopped.
func (s *site) load() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			n, err := s.count(ctx, "SELECT count(*) FROM effects")
			if err == nil && s.published.Load() < int64(n+backlog) {
				err = s.publish(s.t.Context(), int(s.published.Load())+keys) // a round that is begun is finished
			}
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("publish: %v", err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		publishing.Wait()
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *site) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.db.NewRaw(query, args...).Scan(ctx, &n)
	return n, err
}

func (s *site) mustCount(query string, args ...any) int {
	s.t.Helper()
	n, err := s.count(s.t.Context(), query, args...)
	require.NoError(s.t, err)
	return n
}

// eventually waits for a count.
func (s *site) eventually(what string, atLeast int, query string, args ...any) {
	s.t.Helper()
	await.True(s.t, seldom(func() bool { return s.mustCount(query, args...) >= atLeast }), what)
}

// seldom looks at most twenty times a second: to count all rows costs what the consumers need.
func seldom(ok func() bool) func() bool {
	return func() bool {
		if ok() {
			return true
		}
		<-time.After(50 * time.Millisecond)
		return false
	}
}

// goesOn waits until a process, or any if none is named, has handled n more messages.
func (s *site) goesOn(process string, n int) {
	s.t.Helper()
	last := s.mustCount("SELECT coalesce(max(nth), 0) FROM effects")
	s.eventually(process+" goes on", n, "SELECT count(*) FROM effects WHERE nth > ? AND process LIKE ?", last, process+"%")
}

// patience is how long the consumers may take for the rest: a broker that was killed, and has much to replay, may be silent for minutes.
const patience = 5 * time.Minute

// drained waits until all messages have had effects, and reports whether that came true. Otherwise the verdict says what is missing.
func (s *site) drained() bool {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := s.count(ctx, "SELECT count(*) FROM (SELECT DISTINCT key, n FROM effects) e")
		left, leftErr := s.count(ctx, "SELECT (SELECT count(*) FROM inbox_parked) + (SELECT count(*) FROM inbox_key)")
		if errors.Join(err, leftErr) == nil && n >= int(s.published.Load()) && left == 0 {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// judge looks at all effects.
func (s *site) judge() *verdict {
	s.t.Helper()
	var effects []effect
	require.NoError(s.t, s.db.NewRaw("SELECT key, n FROM effects ORDER BY nth").Scan(s.t.Context(), &effects))
	return judge(effects, s.sent())
}

// newBox is an inbox for consumers in this process.
func (s *site) newBox(cfg inbox.Config) *inbox.Inbox {
	cfg.Telemetry.Logger = quiet()
	return inbox.New(s.units, &cfg)
}
