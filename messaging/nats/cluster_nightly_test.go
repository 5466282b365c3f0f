//go:build nightly

package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// cluster is three servers, by their names.
type cluster struct {
	options map[string]*natsserver.Options
	servers map[string]*natsserver.Server
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{options: map[string]*natsserver.Options{}, servers: map[string]*natsserver.Server{}}
	var routes []*url.URL
	var ports []int
	for range 6 { // first of all servers' routes, then of their clients
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		defer l.Close()
	}
	for _, port := range ports[:3] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	for n := range 3 {
		name := fmt.Sprint("s", n)
		c.options[name] = &natsserver.Options{
			ServerName: name, Host: "127.0.0.1", Port: ports[3+n], JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, Routes: routes,
			Cluster: natsserver.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[n]},
		}
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.Shutdown()
			s.WaitForShutdown()
		}
	})
	return c
}

func (c *cluster) start(t *testing.T, name string) {
	t.Helper()
	s, err := natsserver.NewServer(c.options[name])
	require.NoError(t, err)
	s.Start()
	c.servers[name] = s
}

func (c *cluster) url() string {
	var urls []string
	for _, o := range c.options {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return strings.Join(urls, ",")
}

// insist publishes until all messages are confirmed, as the relay does.
func insist(ctx context.Context, b *Broker, msgs []event.Envelope) error {
	for len(msgs) > 0 {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := b.Publish(limited, msgs)
		cancel()
		failed, some := errors.AsType[*messaging.PublishError](err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case messaging.IsPermanent(err):
			return err
		case err == nil:
			return nil
		case some:
			msgs = msgs[len(msgs)-len(failed.Failed):] // of one key, the confirmed ones are the first ones
		}
	}
	return nil
}

// While the leaders of a cluster are killed one after the other, nothing is lost and nothing is out of order.
func TestLeadersThatAreKilled(t *testing.T) {
	c := startCluster(t)
	for name := range c.options {
		c.start(t, name)
	}
	for _, s := range c.servers {
		require.True(t, s.ReadyForConnections(20*time.Second))
	}
	cfg := config(c.url())
	cfg.Partitions, cfg.TakeoverTimeout, cfg.OperationTimeout, cfg.ConnectTimeout = 1, 2*time.Second, 3*time.Second, time.Minute
	b := connect(t, cfg)
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{{Topic: "order", Name: "billing"}}))
	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	const kills, perKill = 4, 150
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	published := make(chan error, 1)
	go func() {
		for n := 1; n <= kills*perKill; n += 5 {
			if err := insist(ctx, b, events(n, n+4)); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	seen, first := map[int64]bool{}, []int64{}
	dead := ""
	for len(first) < kills*perKill {
		m, err := r.Receive(ctx)
		require.NoError(t, err, "after %d", len(first))
		require.NoError(t, r.Ack(ctx, m))
		if seen[m.Sequence] {
			continue
		}
		seen[m.Sequence] = true
		first = append(first, m.Sequence)
		if len(first)%perKill != perKill/2 {
			continue
		}
		if dead != "" {
			c.start(t, dead)
		}
		await.True(t, func() bool {
			s, err := b.session.Stream(ctx, "oncebox-order")
			if err == nil {
				dead = s.CachedInfo().Cluster.Leader
			}
			return err == nil && dead != ""
		}, "a leader")
		c.servers[dead].Shutdown()
		c.servers[dead].WaitForShutdown()
	}
	require.NoError(t, <-published)
	require.Equal(t, numbers(1, kills*perKill), first)
}
