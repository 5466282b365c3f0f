package pulsar_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	rigKeys       = 20
	rigPartitions = 4
	// rigTimeout is the projector's deadline for a publication.
	rigTimeout = 2 * time.Second
)

// rig is an outbox that is written to all the time, and a projector that relays it to Pulsar. Every unit of work stores
// one event for each topic, the n-th of its key there.
type rig struct {
	t       *testing.T
	topics  []string
	cfg     *pulsar.Config
	db      *pgtest.DB
	manager *uow.Manager
	spy     *spy
	log     *lines

	write   context.CancelFunc // ends the writing
	units   int                // committed; read it after the end
	written sync.WaitGroup
}

// newRig connects, with the topics declared in cfg, and starts to write and to relay.
func newRig(t *testing.T, cfg *pulsar.Config) *rig {
	t.Helper()
	r := &rig{t: t, topics: cfg.Topics, cfg: cfg, db: pgtest.Migrated(t), log: &lines{}}
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	cfg.ConnectTimeout, cfg.CloseTimeout = time.Minute, time.Minute
	broker, err := pulsar.Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	r.spy = &spy{to: broker, confirmed: map[string]bool{}, late: map[string]int{}, outcomes: map[string]int{}}
	store := outbox.NewStore(r.db.DB, &outbox.Config{Telemetry: telemetry.Config{Logger: cfg.Telemetry.Logger}})
	r.manager = uow.New(r.db.DB, &uow.Config{Source: "rig", Telemetry: telemetry.Config{Logger: cfg.Telemetry.Logger}}, store)
	p, err := projector.New(r.spy, &projector.Config{PublishTimeout: rigTimeout, MaxRetryAttempts: 1,
		Telemetry: telemetry.Config{Logger: cfg.Telemetry.Logger}}, store)
	require.NoError(t, err)

	relaying, stop := context.WithCancel(context.Background())
	relayed := make(chan error, 1)
	go func() { relayed <- p.Run(relaying) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-relayed)
	})
	writing, stopWriting := context.WithCancel(context.Background())
	r.write = stopWriting
	r.written.Go(func() { r.writeOn(writing) })
	t.Cleanup(r.stopWriting)
	return r
}

// writeOn commits units one after the other, some hundreds a second.
func (r *rig) writeOn(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.manager.Do(context.WithoutCancel(ctx), func(_ context.Context, u *uow.Unit) error {
			var errs []error
			for _, topic := range r.topics {
				n := r.units/rigKeys + 1
				key := "key" + strconv.Itoa(r.units%rigKeys)
				errs = append(errs, u.Add(topic, []byte(strconv.Itoa(n)), event.WithAggregate(topic, key, int64(n))))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			r.t.Errorf("unit %d: %v", r.units, err)
			return
		}
		r.units++
		select {
		case <-time.After(2 * time.Millisecond): // not all of the machine
		case <-ctx.Done():
		}
	}
}

func (r *rig) stopWriting() {
	r.write()
	r.written.Wait()
}

// eventually waits for what has to happen some time.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("log:\n%s", r.log.tail(40))
		}
	}()
	await.True(r.t, ok, what)
}

func (r *rig) count(query string, args ...any) (n int) {
	r.t.Helper()
	require.NoError(r.t, r.db.NewRaw(query, args...).Scan(r.t.Context(), &n))
	return n
}

// goesOn waits until a topic has got events that are stored only now.
func (r *rig) goesOn(topic string) {
	r.t.Helper()
	last := r.count("SELECT last_value FROM outbox_seq")
	r.eventually(topic+" goes on", func() bool {
		return r.count("SELECT count(*) FROM (SELECT FROM outbox_published WHERE topic = ? AND seq > ? LIMIT 50) x", topic, last) == 50
	})
}

// requireReceipts demands that what counts as sent was confirmed, and that no row paid for the trouble.
func (r *rig) requireReceipts() {
	r.t.Helper()
	var ids []string
	require.NoError(r.t, r.db.NewRaw("SELECT id FROM outbox_published").Scan(r.t.Context(), &ids))
	for _, id := range ids {
		require.True(r.t, r.spy.has(id), "%s counts as sent without a receipt", id)
	}
	require.Zero(r.t, r.count("SELECT count(*) FROM outbox_messages WHERE status IN ('FAILED', 'DEAD') OR retry_count > 0"))
	require.Zero(r.t, r.count("SELECT count(*) FROM outbox_held"))
	require.NotContains(r.t, r.log.String(), "panic")
}

// drained waits until nothing is left to send. The writing must have ended.
func (r *rig) drained() {
	r.t.Helper()
	r.eventually("all is sent", func() bool {
		return r.count("SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)") == 0
	})
}

// message is what an independent reader found.
type message struct {
	key string
	n   int
}

// read returns all that a topic holds, of each key in its order.
func (r *rig) read(topic string) []message {
	r.t.Helper()
	client, err := pulsarclient.NewClient(pulsarclient.ClientOptions{
		URL: r.cfg.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	require.NoError(r.t, err)
	defer client.Close()
	ctx, done := await.Context(r.t.Context(), r.t, "all that topic %s holds", topic)
	defer done()
	var out []message
	for p := range rigPartitions { // the client's reader of several leaves goroutines behind
		var reader pulsarclient.Reader
		await.Nil(r.t, func() error {
			reader, err = client.CreateReader(pulsarclient.ReaderOptions{
				Topic:          fmt.Sprintf("persistent://%s/%s/%s-partition-%d", r.cfg.Tenant, r.cfg.Namespace, topic, p),
				StartMessageID: pulsarclient.EarliestMessageID(),
			})
			if err != nil && strings.Contains(err.Error(), "ServiceNotReady") { // a topic that is being loaded is unavailable for a moment
				return err
			}
			return nil
		}, "topic %s can be read", topic)
		require.NoError(r.t, err)
		for reader.HasNext() {
			m, err := reader.Next(ctx)
			require.NoError(r.t, err)
			n, err := strconv.Atoi(string(m.Payload()))
			require.NoError(r.t, err)
			out = append(out, message{m.Key(), n})
		}
		reader.Close()
	}
	return out
}

// requireSeries demands that every event from the first of its key on has arrived, each for the first time in its order.
func (r *rig) requireSeries(topic string, got []message, first map[string]int) {
	r.t.Helper()
	next := map[string]int{}
	for _, m := range got {
		want := max(next[m.key], first[m.key], 1)
		require.LessOrEqual(r.t, m.n, want, "topic %s: %s came too early", topic, m.key)
		next[m.key] = max(want, m.n+1)
	}
	for k := range rigKeys {
		key := "key" + strconv.Itoa(k)
		stored := (r.units + rigKeys - 1 - k) / rigKeys
		require.Equal(r.t, stored+1, max(next[key], first[key], 1), "topic %s: %s lost its end", topic, key)
	}
}

// requireFound demands that a reader finds what counts as sent.
func (r *rig) requireFound(topic string, sent map[message]bool, got []message) {
	r.t.Helper()
	found := map[message]bool{}
	for _, m := range got {
		found[m] = true
	}
	for m := range sent {
		require.True(r.t, found[m], "topic %s: %s #%d counts as sent and is not there", topic, m.key, m.n)
	}
}

// sentOf returns what counts as sent of a topic.
func (r *rig) sentOf(topic string) map[message]bool {
	r.t.Helper()
	var rows []struct {
		AggregateID string
		N           int
	}
	require.NoError(r.t, r.db.NewRaw("SELECT aggregate_id, aggregate_version AS n FROM outbox_messages WHERE status = 'SENT' AND topic = ?", topic).
		Scan(r.t.Context(), &rows))
	out := map[message]bool{}
	for _, row := range rows {
		out[message{row.AggregateID, row.N}] = true
	}
	return out
}

// spy is a publisher that writes down what the adapter says.
type spy struct {
	to messaging.Publisher

	mu        sync.Mutex
	phase     int
	confirmed map[string]bool
	late      map[string]int // confirmations by topic, of calls that began in this phase
	outcomes  map[string]int // failures by topic and class, in this phase
	inVain    int            // calls that began in this phase and confirmed nothing
	early     int            // calls under way that began before this phase
	flying    int            // calls under way
}

// Publish passes the messages on, and counts the call and its result.
func (s *spy) Publish(ctx context.Context, msgs []event.Envelope) error {
	s.mu.Lock()
	phase := s.phase
	s.flying++
	s.mu.Unlock()
	err := s.to.Publish(ctx, msgs)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	if phase != s.phase {
		s.early--
	}
	var failed map[int]error
	if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
		failed = partial.Failed
	}
	for i := range msgs {
		topic := msgs[i].Topic
		switch {
		case failed[i] != nil:
			s.outcomes[topic+" "+class(failed[i])]++
		case err != nil && failed == nil:
			s.outcomes[topic+" "+class(err)]++
		default:
			s.confirmed[msgs[i].ID] = true
			if phase == s.phase {
				s.late[topic]++
			}
		}
	}
	if phase == s.phase && err != nil && (failed == nil || len(failed) == len(msgs)) {
		s.inVain++
	}
	return err
}

func class(err error) string {
	_, isTopic := errors.AsType[*messaging.TopicError](err)
	switch {
	case isTopic:
		return "topic"
	case messaging.IsPermanent(err):
		return "permanent"
	case errors.Is(err, messaging.ErrBrokerDown):
		return "down"
	case errors.Is(err, messaging.ErrBehind):
		return "behind"
	case errors.Is(err, messaging.ErrUnknown):
		return "unknown"
	default:
		return "refused: " + err.Error()
	}
}

// begin starts a phase: earlier calls count no more.
func (s *spy) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase++
	s.early, s.inVain = s.flying, 0
	clear(s.late)
	clear(s.outcomes)
}

func (s *spy) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed[id]
}

// confirmedNow is how many messages to a topic were confirmed in calls that began in this phase.
func (s *spy) confirmedNow(topic string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late[topic]
}

// confirmedEver is how many different messages were confirmed.
func (s *spy) confirmedEver() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed)
}

// failures is how many messages to a topic failed with a class in this phase.
func (s *spy) failures(topic, class string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[topic+" "+class]
}

// callsInVain is how many calls that began in this phase confirmed nothing; 0 while earlier ones are under way.
func (s *spy) callsInVain() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early > 0 {
		return 0
	}
	return s.inVain
}

// earlierOnes is how many calls that began before this phase are under way.
func (s *spy) earlierOnes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early
}

func (s *spy) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.outcomes)
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// tail returns the last lines.
func (l *lines) tail(n int) string {
	all := strings.Split(l.String(), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}

// unsent returns the first event of each key that waits to be sent to a topic.
func (r *rig) unsent(topic string) map[string]int {
	r.t.Helper()
	var rows []struct {
		AggregateID string
		N           int
	}
	require.NoError(r.t, r.db.NewRaw("SELECT aggregate_id, min(aggregate_version) AS n FROM outbox_messages WHERE status <> 'SENT' AND topic = ? "+
		"GROUP BY aggregate_id", topic).Scan(r.t.Context(), &rows))
	out := map[string]int{}
	for _, row := range rows {
		out[row.AggregateID] = row.N
	}
	return out
}
