package pulsar

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// hostile makes messages that are legal on the wire and nothing else.
type hostile struct {
	*rand.Rand

	n int
}

func pick[T any](h *hostile, from ...T) T { return from[h.IntN(len(from))] }

// sometimes is true once in n times.
func (h *hostile) sometimes(n int) bool { return h.IntN(n) == 0 }

func (h *hostile) text() string {
	switch h.IntN(8) {
	case 0:
		junk := make([]byte, h.IntN(40))
		for i := range junk {
			junk[i] = byte(h.Uint32())
		}
		return string(junk)
	case 1:
		return strings.Repeat(pick(h, "x", "Ж", "\xff", "\x00", "|", `\`, "'"), pick(h, 1, 254, 255, 256, 5_000, 70_000))
	default:
		return pick(h, "", "a", "order", "t1", "null", "ce_id", "a\x00b", "\xed\xa0\x80", "\u202e", " ", "|",
			"k1|k2", "🙂", "'; DROP TABLE inbox", "%s", "$1", "../..")
	}
}

func (h *hostile) number() string {
	return pick(h, "", "0", "1", "-1", "+7", " 1", "1.5", "1e9", "0x10", "١", "NaN",
		strconv.Itoa(math.MaxInt32), strconv.Itoa(math.MaxInt32+1), strconv.Itoa(math.MaxInt64), "9223372036854775808", strconv.Itoa(math.MinInt64),
		strings.Repeat("9", 1000), h.text())
}

func (h *hostile) time() string {
	return pick(h, "2025-01-02T03:04:05Z", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999999-23:59",
		"2025-13-45T99:99:99Z", "now", "infinity", h.text())
}

// properties have an id of their own, or none.
func (h *hostile) properties() map[string]string {
	props := map[string]string{}
	for _, p := range []struct {
		name  string
		value func() string
	}{
		{"ce_specversion", func() string { return pick(h, "1.0", "0.3", h.text()) }},
		{"ce_type", h.text}, {"ce_source", h.text}, {"ce_subject", h.text}, {"ce_dataschema", h.text}, {"ce_tenantid", h.text},
		{"ce_aggregatetype", h.text}, {"content-type", h.text}, {"ce_time", h.time},
		{"ce_aggregateversion", h.number}, {"ce_sequence", h.number}, {"ce_schemaversion", h.number},
		{"ce_correlationid", h.text}, {"ce_causationid", h.text}, {event.TraceState, h.text},
		{event.TraceParent, func() string {
			return pick(h, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-"+h.text(), h.text())
		}},
		{propEarly, h.text}, {messaging.UnreadableKey, h.text}, {event.SealedKey, h.text}, {"ce_orderingkey", h.text}, {"meta-", h.text},
	} {
		if h.sometimes(3) {
			props[p.name] = p.value()
		}
	}
	if !h.sometimes(8) {
		delete(props, messaging.UnreadableKey)
	}
	if !h.sometimes(4) {
		h.n++
		props["ce_id"] = strconv.Itoa(h.n) + pick(h, "", h.text())
	}
	for range pick(h, 0, 0, 1, 5, 300) {
		props[pick(h, "meta-", "", "ce_")+h.text()+strconv.Itoa(h.IntN(1000))] = h.text()
		if propertiesSize(props) > 1<<20 {
			break
		}
	}
	props["x"] = "1" // the client throws away what has no payload either
	return props
}

func propertiesSize(props map[string]string) (n int) {
	for name, value := range props {
		n += len(name) + len(value)
	}
	return n
}

func (h *hostile) payload() []byte {
	return pick(h, nil, []byte("null"), []byte(`{"a":1}`), []byte("\xff\xfe"), []byte(`{"a":`), []byte(h.text()),
		bytes.Repeat([]byte("["), 100_000), make([]byte, h.IntN(1<<20)))
}

// message returns the metadata and the payload of a message, and how many messages it is.
func (h *hostile) message() (metadata pb, payload []byte, count int) {
	metadata, payload = pb{}.properties(4, h.properties()), h.payload()
	if h.sometimes(2) {
		metadata = metadata.text(6, h.text()).number(17, h.Uint64N(2)) // the key
	}
	if h.sometimes(4) {
		metadata = metadata.number(12, pick(h, 0, 1, math.MaxInt64, math.MaxUint64, h.Uint64())) // the event time
	}
	if h.sometimes(8) {
		metadata = metadata.text(18, h.text()) // the ordering key
	}
	switch h.IntN(40) {
	case 0, 1:
		return h.sealed(metadata), payload, 1
	case 2, 3:
		whole := pick(h, payload, make([]byte, h.IntN(2<<20)))
		return h.compressed(metadata, whole)
	case 4:
		return h.compressed(metadata, make([]byte, 20<<20))
	case 5, 6:
		return h.batch(metadata)
	case 7:
		return metadata.number(25, 1), nil, 1 // a tombstone
	case 8:
		if h.sometimes(8) {
			return h.sealed(metadata.number(11, 2+h.Uint64N(300))), payload, 1 // an encrypted batch
		}
	}
	return metadata, payload, 1
}

// sealed marks the payload as encrypted.
func (h *hostile) sealed(metadata pb) pb {
	key := pb{}.text(1, h.text()).text(2, h.text()).properties(3, map[string]string{h.text(): h.text()})
	return metadata.bytes(13, key).text(14, h.text()).text(15, h.text()).number(8, h.Uint64N(5)).number(9, h.Uint64N(1<<32))
}

func (*hostile) compressed(metadata pb, whole []byte) (pb, []byte, int) {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write(whole)
	_ = w.Close()
	if len(whole) == 0 {
		return metadata, nil, 1
	}
	return metadata.number(8, 2).number(9, uint64(len(whole))), b.Bytes(), 1
}

func (h *hostile) batch(metadata pb) (pb, []byte, int) {
	n := 1 + h.IntN(30)
	var all []byte
	for range n {
		payload := []byte(h.text())
		single := pb{}.properties(1, h.properties()).text(2, h.text()).number(3, uint64(len(payload))).number(5, h.Uint64())
		all = binary.BigEndian.AppendUint32(all, uint32(len(single)))
		all = append(append(all, single...), payload...)
		if len(all) > 2<<20 {
			return metadata, []byte("too much of it"), 1
		}
	}
	return metadata.number(11, uint64(n)), all, n
}

// target is a service that gets hostile messages, and good ones between them.
type target struct {
	t      *testing.T
	db     *pgtest.DB
	units  *uow.Manager
	broker *Broker

	mu      sync.Mutex
	sent    map[string]time.Time
	slowest time.Duration
}

const goodType = "good"

func newTarget(t *testing.T, cfg *Config) *target {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	w := &target{t: t, db: pgtest.Migrated(t), broker: connect(t, cfg), sent: map[string]time.Time{}}
	_, err := w.db.Exec("CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, key text, n bigint)")
	require.NoError(t, err)
	w.units = uow.New(w.db.DB, &uow.Config{Source: "target",
		Telemetry: telemetry.Config{Logger: quiet}}, outbox.NewStore(w.db.DB, &outbox.Config{Telemetry: telemetry.Config{Logger: quiet}}))
	box := inbox.New(w.units, &inbox.Config{
		Retry:        inbox.RetryPolicy{Tries: 1, MaxAttempts: 3, Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: 10 * time.Millisecond}},
		PollInterval: 50 * time.Millisecond, Telemetry: telemetry.Config{Logger: quiet},
	})
	l, err := messaging.NewLoop(w.broker, messaging.Subscription{Topic: "order", Name: "s"}, box.Wrap("s", messaging.HandlerFunc(w.handle)),
		&messaging.ConsumerConfig{DrainTimeout: time.Second, BacklogInterval: -1, Telemetry: telemetry.Config{Logger: quiet}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { _ = box.RunParked(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w
}

// handle does what handlers do, well and badly, and emits an event.
func (w *target) handle(ctx context.Context, m *messaging.Message) error {
	u := uow.MustFromContext(ctx)
	if err := u.Add("out", []byte("x")); err != nil && m.Type == goodType {
		return err
	}
	if m.Type == goodType {
		w.mu.Lock()
		w.slowest = max(w.slowest, time.Since(w.sent[m.ID]))
		w.mu.Unlock()
		_, err := u.DB().NewRaw("INSERT INTO effect (key, n) VALUES (?, ?)", m.RoutingKey, m.Sequence).Exec(ctx)
		return err
	}
	switch len(m.Payload) % 5 {
	case 0:
		return messaging.Permanent(errors.New("never: " + m.AggregateID))
	case 1:
		return errors.New("not now: " + m.RoutingKey)
	case 2:
		panic(m.Metadata)
	default:
		return nil
	}
}

// good publishes the n-th good message of each of some keys.
func (w *target) good(n int) {
	w.t.Helper()
	var msgs []event.Envelope
	w.mu.Lock()
	for k := range goodKeys {
		env := envelope("order", fmt.Sprintf("good%d", k), n)
		env.Type = goodType
		w.sent[env.ID] = time.Now()
		msgs = append(msgs, env)
	}
	w.mu.Unlock()
	require.NoError(w.t, w.broker.Publish(patient(w.t), msgs))
}

const goodKeys = 4

// follow waits until few of the messages that were sent are not settled. What a good message waits for is then what hostile ones do, and
// not how much faster messages are sent than anybody can handle them.
func (w *target) follow(sent int) {
	w.t.Helper()
	const few = 100
	await.True(w.t, func() bool { return w.count("inbox") >= sent-few }, "all but %d of %d messages are settled", few, sent)
}

func (w *target) count(query string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.db.NewRaw("SELECT count(*) FROM "+query).Scan(w.t.Context(), &n))
	return n
}

// Whatever comes over the wire, each message is settled and remembered, what nobody can handle is stored, and good messages of
// other keys are handled meanwhile.
func TestHostileMessagesStopNobody(t *testing.T) {
	t.Parallel()
	for seed := range nightly.Seeds(t, 1, 3) {
		sendHostileMessages(t, seed, nightly.N(150, 3_000))
	}
}

func sendHostileMessages(t *testing.T, seed uint64, messages int) {
	t.Helper()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions = []string{"order"}, 1
	w := newTarget(t, cfg)
	p := newBareProducer(t, cfg, "order-partition-0")

	sent, goods := 0, 0
	for i := range 100 { // that no column takes
		version := strconv.Itoa(math.MaxInt32 + 1 + i)
		p.send(pb{}.properties(4, map[string]string{
			"ce_id": "v" + version, "ce_type": "x", "ce_source": "s", "ce_schemaversion": version,
		}), nil)
		sent++
	}
	h := &hostile{Rand: rand.New(rand.NewPCG(seed, 0))}
	for i := range messages {
		if i%20 == 0 {
			w.follow(sent + goods*goodKeys)
			goods++
			w.good(goods)
			p.connect() // that may have taken longer than the broker waits for a pong
		}
		metadata, payload, count := h.message()
		p.send(metadata, payload)
		sent += count
	}
	goods++
	w.good(goods)
	await.True(t, func() bool { return w.count("effect") == goods*goodKeys }, "good messages are handled")
	await.True(t, func() bool { return w.count("inbox") >= sent+goods*goodKeys }, "all others are settled")
	require.Equal(t, sent+goods*goodKeys, w.count("inbox"), "each once")
	(&effects{t: t, db: w.db, broker: w.broker}).settled("order", "s")
	(&effects{t: t, db: w.db}).requireOnceInOrder(goodKeys, goods)
	t.Logf("hostile sent=%d dead=%d waiting=%d good=%d slowest_good=%s", sent, w.count("inbox_dead"), w.count("inbox_parked"), goods*goodKeys, w.slowest)
}
