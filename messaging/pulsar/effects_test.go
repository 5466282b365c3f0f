package pulsar

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// effects are what handlers wrote into a database, under whatever happens to consumers and acknowledgements.
type effects struct {
	t          *testing.T
	db         *pgtest.DB
	namespace  *pulsartest.Namespace
	broker     *Broker // of the publisher
	handler    messaging.Handler
	deliveries atomic.Int64
}

func newEffects(t *testing.T, cfg *Config, n *pulsartest.Namespace) *effects {
	t.Helper()
	e := &effects{t: t, db: pgtest.Migrated(t, pgtest.Inbox), namespace: n, broker: connect(t, cfg)}
	_, err := e.db.Exec("CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, key text, n bigint)")
	require.NoError(t, err)
	quiet := slog.New(slog.DiscardHandler)
	units := uow.New(e.db.DB, &uow.Config{Source: "effects", Telemetry: telemetry.Config{Logger: quiet}})
	box := inbox.New(units, &inbox.Config{Telemetry: telemetry.Config{Logger: quiet}})
	once := box.Wrap("s", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		_, err := units.DB(ctx).NewRaw("INSERT INTO effect (key, n) VALUES (?, ?)", m.RoutingKey, m.Sequence).Exec(ctx)
		return err
	}))
	e.handler = messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		e.deliveries.Add(1)
		return once.Handle(ctx, m)
	})
	return e
}

// consume runs a consumer of the subscription until stop is called, which waits for its end.
func (e *effects) consume(b *Broker, s messaging.Subscription) (l *messaging.Loop, stop func()) {
	e.t.Helper()
	l, err := messaging.NewLoop(b, s, e.handler, &messaging.ConsumerConfig{
		DrainTimeout: time.Second, BacklogInterval: -1, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	})
	require.NoError(e.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Run(ctx); err != nil {
			e.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	e.t.Cleanup(stop)
	return l, stop
}

func (e *effects) count() (n int) {
	e.t.Helper()
	require.NoError(e.t, e.db.NewRaw("SELECT count(*) FROM effect").Scan(e.t.Context(), &n))
	return n
}

func (e *effects) eventually(what string, ok func() bool) {
	e.t.Helper()
	await.True(e.t, ok, what)
}

// requireOnceInOrder demands that each message of each key had its effect once, in order.
func (e *effects) requireOnceInOrder(keys, perKey int) {
	e.t.Helper()
	var rows []struct {
		Key string
		N   int64
	}
	require.NoError(e.t, e.db.NewRaw("SELECT key, n FROM effect ORDER BY id").Scan(e.t.Context(), &rows))
	last := map[string]int64{}
	for _, row := range rows {
		require.Equal(e.t, last[row.Key]+1, row.N, "key %s", row.Key)
		last[row.Key] = row.N
	}
	require.Len(e.t, rows, keys*perKey)
}

// settled waits until the broker has nothing left for the subscription.
func (e *effects) settled(topic, name string) {
	e.t.Helper()
	e.eventually("all is acknowledged", func() bool {
		parts, err := e.broker.keeper.Admin.Backlogs(e.t.Context(), topic, name)
		if err != nil || len(parts) == 0 {
			return false
		}
		left := int64(0)
		for _, part := range parts {
			left += part.Waiting
		}
		return left == 0
	})
}

// proxy stands between a client and the broker. It is deaf when told so: what the client says is lost, and the client does
// not know. When it is choked the broker's writes to the client wait.
type proxy struct {
	listener net.Listener
	broker   string
	deaf     atomic.Bool
	lost     atomic.Int64 // bytes
	running  sync.WaitGroup
	choked   sync.RWMutex // held while nothing is read from the broker
	closed   atomic.Bool  // to new connections

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, broker: strings.TrimPrefix(url, "pulsar://")}
	p.running.Go(p.serve)
	t.Cleanup(func() {
		p.kill()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "pulsar://" + p.listener.Addr().String() }

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.closed.Load() {
			_ = client.Close()
			continue
		}
		broker, err := net.Dial("tcp", p.broker)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, broker)
		p.mu.Unlock()
		p.running.Go(func() { p.pass(client, broker, true) })
		p.running.Go(func() { p.pass(broker, client, false) })
	}
}

func (p *proxy) pass(from, to net.Conn, fromClient bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		if !fromClient {
			p.choked.RLock()
			p.choked.RUnlock() //nolint:staticcheck // a door
		}
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if fromClient && p.deaf.Load() {
			p.lost.Add(int64(n))
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections. The client makes new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// kill is to the broker what the death of the client's process is.
func (p *proxy) kill() {
	_ = p.listener.Close()
	p.cut()
}
