package rabbitmq

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/certtest"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s := startedHere(t)
	stranger, err := certtest.New(t.TempDir(), "stranger")
	require.NoError(t, err)
	secure := func(from *certtest.Authority, name string) *Config {
		cfg := config(s.TLSURL)
		cfg.TLSTrustCerts, cfg.Subscriptions = s.authority.CertFile, []messaging.Subscription{billing("secure")}
		cfg.TLSCert, cfg.TLSKey, err = from.Issue(t.TempDir(), name)
		require.NoError(t, err)
		return cfg
	}
	publish := func(cfg *Config) {
		require.NoError(t, connect(t, cfg).Publish(patient(t), []event.Envelope{envelope("secure", "a", 1)}))
	}
	cfg := secure(s.authority, "client")
	publish(cfg)
	cfg.TLSTrustCerts, cfg.TLSAllowInsecure = "", true
	publish(cfg)

	// The certificate is the login: its common name is the user.
	cfg = secure(s.authority, "guest")
	cfg.URL = strings.Replace(cfg.URL, "guest:guest@", "", 1) + "?auth_mechanism=external"
	publish(cfg)
	cfg = secure(s.authority, "nobody")
	cfg.URL = strings.Replace(cfg.URL, "guest:guest@", "", 1) + "?auth_mechanism=external"
	_, err = Connect(patient(t), cfg)
	require.Error(t, err, "there is no such user")

	// None of this passes by itself, so Connect does not wait. Only in TLS 1.3 the refusal of a certificate may be overtaken by the end of the connection.
	for _, mistake := range []struct {
		says   string
		change func(cfg *Config)
	}{
		{"certificate required", func(cfg *Config) { cfg.TLSCert, cfg.TLSKey = "", "" }},
		{"certificate required", func(cfg *Config) { *cfg = *secure(stranger, "client") }}, // none of the server's authority
		{"certificate signed by unknown authority", func(cfg *Config) { cfg.TLSTrustCerts = stranger.CertFile }},
		{"first record does not look like a TLS", func(cfg *Config) { cfg.URL = strings.Replace(s.URL, "amqp:", "amqps:", 1) }},
		{"Config.TLSTrustCerts", func(cfg *Config) { cfg.TLSTrustCerts = "/does/not/exist" }},
		{"Config.TLSCert", func(cfg *Config) { cfg.TLSCert, cfg.URL = "/does/not/exist", "amqp://127.0.0.1" }},
	} {
		cfg := secure(s.authority, "client")
		mistake.change(cfg)
		cfg.Required = true
		_, err := Connect(patient(t), cfg)
		require.ErrorContains(t, err, mistake.says)
		require.NotErrorIs(t, err, messaging.ErrBrokerDown)
	}
}

// A broker that goes down in the middle of a handshake does not refuse the password or the virtual host, which looks the same at first.
func TestConnectionIsLostInItsHandshake(t *testing.T) {
	t.Parallel()
	long := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	start := bytes.Join([][]byte{{0, 10, 0, 10, 0, 9}, long(""), long("PLAIN"), long("en_US")}, nil)
	tune := []byte{0, 10, 0, 30, 0, 0, 0, 0, 0, 0, 0, 0}
	for step, methods := range map[string][][]byte{"after the password": {start}, "after the virtual host": {start, tune}} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			answered := make(chan error, 1)
			go func() {
				conn, err := listener.Accept()
				_ = listener.Close()
				if err == nil {
					err = answer(conn, methods)
				}
				answered <- err
			}()
			b := connect(t, config("amqp://guest:guest@"+listener.Addr().String())) // it waits in the background
			require.NoError(t, <-answered)
			require.True(t, b.start.IsUnder())
		})
	}
}

// answer sends these methods, in a frame each (AMQP 0-9-1, section 2.3.5), whenever the client has sent something, and then hangs up.
func answer(conn net.Conn, methods [][]byte) error {
	defer conn.Close()
	heard := make([]byte, 4096)
	for _, method := range methods {
		if _, err := conn.Read(heard); err != nil {
			return err
		}
		frame := append([]byte{1, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(method)))...)
		if _, err := conn.Write(append(append(frame, method...), 0xCE)); err != nil {
			return err
		}
	}
	_, err := conn.Read(heard)
	return err
}

// While the connection was lost, somebody has deleted all that belongs to a subscription. It is there again before anything is published.
func TestTopologyComesBackWithTheConnection(t *testing.T) {
	t.Parallel()
	l := linktest.New(t, server(t).URL)
	cfg := config(l.URL)
	cfg.Exchange, cfg.Queues, cfg.Subscriptions = "restored", 2, []messaging.Subscription{billing("back")}
	b := connect(t, cfg)
	l.SetDown(true)
	operator(t, func(ch *amqp.Channel) error {
		for _, queue := range []string{"restored:back:billing:0", "restored:back:billing:1"} {
			if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
				return err
			}
		}
		return ch.ExchangeDelete("restored:back:billing", false, false)
	})
	l.SetDown(false)
	watcher := config(server(t).URL)
	watcher.Exchange, watcher.Queues = cfg.Exchange, cfg.Queues
	other := connect(t, watcher)
	await.True(t, func() bool {
		state, err := other.ReadSubscription(patient(t), "back", "billing")
		require.NoError(t, err)
		return !state.Missing
	}, "the subscription is made again")
	insist(t, b, []event.Envelope{envelope("back", "a", 1)})
}

// The hosts of a cluster are tried in turn, and one that does not answer takes no longer than ConnectionTimeout.
func TestHostThatSaysNothing(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	cfg := config(strings.Replace(server(t).URL, "@", "@"+silent.Addr().String()+",", 1))
	cfg.ConnectionTimeout = time.Second
	cfg.Required = true
	connect(t, cfg)
}

// The user is deleted while the service runs. Nobody can publish, so no topic is to blame.
func TestUserIsDeleted(t *testing.T) {
	t.Parallel()
	declared(t, billing("orphaned"))
	address := user(t, "^oncebox", "^oncebox", "^oncebox")
	l := linktest.New(t, address)
	b := connect(t, config(l.URL))
	msgs := []event.Envelope{envelope("orphaned", "a", 1)}
	require.NoError(t, b.Publish(patient(t), msgs))
	u, err := url.Parse(address)
	require.NoError(t, err)
	require.NoError(t, server(t).remove("/users/"+u.User.Username()))
	l.Cut()
	await.True(t, func() bool {
		ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
		defer cancel()
		err := failedOf(t, b.Publish(ctx, msgs))[0]
		_, isTopic := errors.AsType[*messaging.TopicError](err)
		require.False(t, isTopic, "%v", err)
		return errors.Is(err, messaging.ErrBrokerDown) && strings.Contains(err.Error(), "password not allowed")
	}, "the broker refuses the user")
	ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
	defer cancel()
	_, err = b.Subscribe(ctx, billing("orphaned"))
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	_, isTopic := errors.AsType[*messaging.TopicError](err)
	require.False(t, isTopic, "%v", err)
}
