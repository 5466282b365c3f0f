package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// greeter tries to reach the broker, for [adapters.Start].
type greeter struct {
	broker *Broker

	mu     sync.Mutex
	refuse func(error) // ends the request that is under way
}

// asking sets the function that isRefused calls, or nil.
func (g *greeter) asking(refuse func(error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = refuse
}

// isRefused is called with the reason when the broker refuses a connection. It ends the request under way: the client would repeat it until
// its timeout, and then report a connection error.
func (g *greeter) isRefused(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuse != nil && strings.Contains(strings.ToLower(reason), "authenticat") {
		g.refuse(fmt.Errorf("%w: %s", answer.ErrNotLetIn, reason))
	}
}

// greet returns nil as soon as the broker has answered and the topics and subscriptions of Config exist.
func (g *greeter) greet(ctx context.Context) error {
	b := g.broker
	// A request of the client to a broker that is away takes long and cannot be cancelled. So it is sent only if the address accepts
	// connections.
	address, err := g.listening(ctx)
	if err != nil {
		return err
	}
	topic := b.keeper.FullName("oncebox")
	if len(b.cfg.Topics) > 0 {
		topic = b.keeper.FullName(b.cfg.Topics[0])
	}
	asking, answered := context.WithCancelCause(ctx)
	defer answered(nil)
	g.asking(answered)
	defer g.asking(nil)
	b.background.Go(func() {
		if backoff.Wait(asking, time.Second) != nil {
			return
		}
		if err := g.wrongPort(asking, address); err != nil { // a broker would have answered within that second
			answered(err)
		}
	})
	_, _, err = answer.Once(asking, &b.background, func() ([]string, error) { return b.client.TopicPartitions(topic) }, func([]string) {})
	switch {
	case err == nil || answer.Came(err): // an answer such as "no such topic" is enough
	case errors.Is(err, answer.ErrNotLetIn):
		return fmt.Errorf("%s: %w", adapters.Redacted(b.cfg.URL), err)
	case errors.Is(err, answer.ErrWrongPort):
		return err
	default:
		return errors.Join(err, g.wrongPort(ctx, address))
	}
	b.keeper.HasAdmin(ctx)
	return b.declare(ctx, b.cfg.Topics, b.cfg.Subscriptions)
}

// listening returns the first address of the broker that accepts a TCP connection.
func (g *greeter) listening(ctx context.Context) (address string, err error) {
	dialer := net.Dialer{Timeout: g.broker.cfg.ConnectionTimeout}
	var errs []error
	for _, host := range g.broker.cfg.hosts() {
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			return host, conn.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// wrongPort returns an error if a web server answers at the address. A broker closes the connection.
func (g *greeter) wrongPort(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil //nolint:nilerr // the caller has a better one
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: g.broker.cfg.ConnectionTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil //nolint:nilerr // it does not speak HTTP
	}
	return errors.Join(fmt.Errorf("%s: %w", address, answer.ErrWrongPort), resp.Body.Close())
}
