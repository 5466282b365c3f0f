package pulsar

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/telemetry"
)

// away is a way to the broker that ends every connection until it is opened.
func away(t *testing.T, n *pulsartest.Namespace) (*linktest.Link, *Config) {
	t.Helper()
	l := linktest.New(t, n.URL)
	l.SetDown(true)
	cfg := declared(n, "order", "s")
	cfg.URL, cfg.OperationTimeout = l.URL, 200*time.Millisecond
	return l, cfg
}

// A broker that is away at the start is waited for. What is published meanwhile fails as with any broker that is down, and when it
// comes what is declared is made before anything else.
func TestBrokerThatComesLate(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	n := pulsartest.Open(t)
	l, cfg := away(t, n)
	cfg.Telemetry.Logger = log.Logger()
	b := connect(t, cfg)
	require.Equal(t, 1, log.Count("the broker cannot be reached"))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	msgs := []event.Envelope{envelope("order", "a", 1)}
	require.ErrorIs(t, b.Publish(ctx, msgs), messaging.ErrBrokerDown)
	_, err := b.Subscribe(ctx, messaging.Subscription{Topic: "order", Name: "s"})
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	require.ErrorIs(t, b.Declare(ctx, []string{"order"}, nil), messaging.ErrBrokerDown)
	_, err = b.Retention(ctx, "order")
	require.ErrorIs(t, err, messaging.ErrBrokerDown)

	published := make(chan error, 1)
	go func() { published <- b.Publish(patient(t), msgs) }()
	l.SetDown(false)
	require.NoError(t, await.Receive(t, published, "the call that waited is served"))
	require.Equal(t, 1, log.Count("the connection to the broker is open"))
	partitions, err := connect(t, config(n)).keeper.Admin.Partitions(patient(t), "order") // b has a timeout that is too short for a busy machine
	require.NoError(t, err)
	require.Equal(t, 4, partitions, "the topic was declared before it was published to")
	r, err := b.Subscribe(patient(t), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	receiveAll(t, r, 1)
}

// Until what Config declares is made the broker is not used, although it is there.
func TestNothingIsDoneBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	var started atomic.Bool
	b.start = adapters.NewStart(adapters.Greeting{
		Greet: func(context.Context) error {
			if started.Load() {
				return nil
			}
			return errors.New("not yet")
		},
		Lasts: answer.Lasts, Timeout: hang, Open: b.open, Log: b.log,
	})
	require.NoError(t, b.start.Begin(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	msgs := []event.Envelope{envelope("order", "a", 1)}
	calls := map[string]func() error{
		"publish":   func() error { return b.Publish(ctx, msgs) },
		"declare":   func() error { return b.Declare(ctx, []string{"order"}, nil) },
		"retention": func() error { _, err := b.Retention(ctx, "order"); return err },
		"subscribe": func() error {
			_, err := b.Subscribe(ctx, messaging.Subscription{Topic: "order", Name: "s"})
			return err
		},
	}
	answers := map[string]chan error{}
	for name, call := range calls { // at once: each has all of ctx
		answers[name] = make(chan error, 1)
		go func(answer chan<- error) { answer <- call() }(answers[name])
	}
	for name, answer := range answers {
		require.ErrorIs(t, await.Receive(t, answer, "an answer"), messaging.ErrBrokerDown, name)
	}
	started.Store(true)
	require.NoError(t, b.Publish(patient(t), msgs))
}

// Nothing of the waiting outlives Close, nor holds it up.
func TestCloseWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	b, err := Connect(t.Context(), &Config{URL: "pulsar://" + nobody, Telemetry: telemetry.Config{Logger: new(logbook.Book).Logger()}, CloseTimeout: time.Hour})
	require.NoError(t, err)
	// Each call of the broker does this first. It is under way when Close is called.
	leave, err := b.calls.Enter("publish")
	require.NoError(t, err)
	called, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		defer leave()
		called <- b.start.Wait(context.Background(), "publish")
	}()
	go func() { closed <- b.Close() }()
	require.NoError(t, await.Receive(t, closed, "the broker is closed"))
	require.ErrorIs(t, await.Receive(t, called, "the call ends with Close"), messaging.ErrBrokerDown)
	require.ErrorIs(t, b.Publish(context.Background(), []event.Envelope{envelope("order", "a", 1)}), messaging.ErrBrokerDown, "after Close")
}

func TestConnectToAWebServer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	url := "pulsar://" + strings.TrimPrefix(web.URL, "http://")
	_, err := Connect(t.Context(), &Config{
		URL: url, OperationTimeout: 2 * time.Second, ConnectionTimeout: hang, ConnectTimeout: hang,
		Telemetry: telemetry.Config{Logger: new(logbook.Book).Logger()},
	})
	require.ErrorIs(t, err, answer.ErrWrongPort)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_URL")
}

func TestConnectWithoutTheTokenFile(t *testing.T) {
	_, err := Connect(t.Context(), &Config{URL: "pulsar://" + nobody, TokenFile: "no such file"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_TOKEN_FILE")
}

func TestConnectWithoutTenantOrNamespace(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	for place, parts := range map[string][]string{
		"nobody/default": {`there is no tenant "nobody"`, "ONCEBOX_PULSAR_TENANT", "pulsar-admin tenants create nobody"},
		"public/nowhere": {`there is no namespace "public/nowhere"`, "ONCEBOX_PULSAR_NAMESPACE", "pulsar-admin namespaces create public/nowhere"},
	} {
		cfg := declared(n, "order", "s")
		cfg.Tenant, cfg.Namespace, _ = strings.Cut(place, "/")
		_, err := Connect(t.Context(), cfg)
		for _, part := range parts {
			require.ErrorContains(t, err, part)
		}
		cfg.AdminURL, cfg.AdminTimeout = "http://"+nobody, 1
		_, err = Connect(t.Context(), cfg)
		for _, part := range parts[1:] {
			require.ErrorContains(t, err, part, "without the admin API")
		}
	}
}

// Only the client's log distinguishes a refused token from a broken connection.
func TestConnectWithARefusedToken(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { refuse(conn) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		serving.Wait()
	})
	_, err = Connect(t.Context(), &Config{
		URL: "pulsar://" + listener.Addr().String(), Token: "wrong", ConnectTimeout: hang, OperationTimeout: 2 * time.Second,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	})
	require.ErrorIs(t, err, answer.ErrNotLetIn)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_TOKEN")
	require.ErrorContains(t, err, "Failed to authenticate")
}

// refuse answers a connection as a broker does that does not know the token (CommandError in PulsarApi.proto).
func refuse(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return // nothing was asked
	}
	if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))); err != nil {
		return
	}
	const kind, authenticationError = 14, 3
	command := pb{}.number(1, kind).bytes(kind, pb{}.number(1, 1).number(2, authenticationError).text(3, "Failed to authenticate"))
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(command)))
	frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(command))), command...)
	_, _ = conn.Write(frame)
}
