package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/certtest"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/leaktest"
	"github.com/oncebox/oncebox/telemetry"
)

// TestMain stops the server that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	leaktest.Exit(code)
}

// place is a RabbitMQ with the certificates of its TLS. On a server that was found running the tests have a virtual host of their own.
type place struct {
	*devenv.RabbitMQServer

	once      sync.Once
	err       error
	folder    string
	authority *certtest.Authority
	vhost     string // as a part of a path
}

var shared place

// start takes the server of AMQP_URL, or starts one that wants a certificate of each client with TLS.
func (p *place) start(own bool) (err error) {
	if p.folder, err = os.MkdirTemp("", "oncebox-rabbitmq"); err != nil {
		return err
	}
	if p.authority, err = certtest.New(p.folder, "authority"); err != nil {
		return err
	}
	cert, key, err := p.authority.Issue(p.folder, "server")
	if err != nil {
		return err
	}
	p.RabbitMQServer, err = devenv.RabbitMQ(context.Background(), &devenv.Options{Volatile: true, Own: own, RabbitMQSettings: map[string]string{
		"ssl_options.cacertfile": p.authority.CertFile, "ssl_options.certfile": cert, "ssl_options.keyfile": key,
		"ssl_options.verify": "verify_peer", "ssl_options.fail_if_no_peer_cert": "true",
	}})
	if p.vhost = "%2F"; err != nil || p.TLSURL != "" {
		return err
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return err
	}
	p.vhost = strings.ToLower(rand.Text())
	u.Path = "/" + p.vhost
	p.URL = u.String()
	return errors.Join(p.put("/vhosts/"+p.vhost, "{}"), p.put("/permissions/"+p.vhost+"/"+u.User.Username(), `{"configure":".*","write":".*","read":".*"}`))
}

// put and remove change something with the management plugin.
func (p *place) put(path, body string) error {
	_, err := p.Manage(context.Background(), http.MethodPut, path, body)
	return err
}

func (p *place) remove(path string) error {
	_, err := p.Manage(context.Background(), http.MethodDelete, path, "")
	return err
}

func (p *place) stop() error {
	var err error
	if p.RabbitMQServer != nil {
		if p.vhost != "%2F" {
			err = p.remove("/vhosts/" + p.vhost)
		}
		err = errors.Join(err, p.Stop())
	}
	if p.folder != "" {
		err = errors.Join(err, os.RemoveAll(p.folder))
	}
	return err
}

// server returns the RabbitMQ that all tests share.
func server(t *testing.T) *place {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.start(false) })
	require.NoError(t, shared.err)
	return &shared
}

// startedHere is server for tests that need more than AMQP: a server that was found running is not theirs.
func startedHere(t *testing.T) *place {
	t.Helper()
	if s := server(t); s.TLSURL != "" {
		return s
	}
	own := &place{}
	t.Cleanup(func() { require.NoError(t, own.stop()) })
	require.NoError(t, own.start(true))
	return own
}

// hang is what takes longer than anything that works.
const hang = 5 * time.Minute

// config is that of the tests. What only stops a hang is long: a machine may stand still.
func config(url string) *Config {
	return &Config{
		URL: url, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}, LogInterval: -1, MaxMessageBytes: 5 << 20,
		ConnectionTimeout: hang, Heartbeat: hang, ConnectTimeout: hang, PublishTimeout: hang, CloseTimeout: hang,
	}
}

// connect connects and closes with the test.
func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// patient bounds what waits for a server.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// operator calls do with a channel of the client, as an operator who changes something at the broker.
func operator(t *testing.T, do func(ch *amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(server(t).URL)
	require.NoError(t, err)
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, do(ch))
	require.NoError(t, conn.Close())
}

// foreign publishes messages of another program, and waits until each is stored. If a program closes its connection before that, a message that its
// channel has routed may be lost: a quorum queue forgets a channel that has ended, and drops messages of that channel that come later (seen with 3.10,
// on a busy machine).
func foreign(t *testing.T, exchange, key string, messages ...amqp.Publishing) {
	t.Helper()
	operator(t, func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		returned := ch.NotifyReturn(make(chan amqp.Return, len(messages)))
		for _, m := range messages {
			confirmed, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
			if err != nil {
				return err
			}
			acked, err := confirmed.WaitContext(patient(t))
			require.NoError(t, err)
			require.True(t, acked, "the broker stores the message")
		}
		require.Empty(t, returned, "each message has a queue") // the broker returns a message before it confirms it
		return nil
	})
}

// envelope is the n-th message of a key.
func envelope(topic, key string, n int) event.Envelope {
	return event.Envelope{
		ID: fmt.Sprintf("%s-%s-%d", topic, key, n), Type: "t", Source: "s", TenantID: "t1", Topic: topic, RoutingKey: key, Sequence: int64(n),
		OccurredAt: time.Now(), ContentType: "text/plain", Payload: fmt.Appendf(nil, "%d", n),
	}
}

// insist publishes until all messages are confirmed.
func insist(t *testing.T, b *Broker, msgs []event.Envelope) {
	t.Helper()
	for len(msgs) > 0 {
		ctx, cancel := context.WithTimeout(patient(t), time.Minute)
		err := b.Publish(ctx, msgs)
		cancel()
		if err == nil {
			return
		}
		failed := failedOf(t, err)
		var again []event.Envelope
		for i := range msgs {
			if failed[i] != nil {
				again = append(again, msgs[i])
			}
		}
		msgs = again
	}
}
