package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrDenied is the cause of an error if the user of the connection has no permission. The server does not answer a request that it does not permit; it
// only reports the violation.
var ErrDenied = errors.New("the user of this connection has no permission")

// Session is a connection, which the client opens again when it is lost. Make it with [Dial].
type Session struct {
	*Link

	// Conn and JS are the client's.
	Conn *natsclient.Conn
	JS   jetstream.JetStream
	// API is the first part of the subjects of JetStream's requests.
	API string

	cfg     Config
	denials denials
}

// Config configures [Dial].
type Config struct {
	// URL is the address of the server, Options are the client's, and Domain is the JetStream domain, which may be empty.
	URL     string
	Options []natsclient.Option
	Domain  string
	// Timeout is how long the server may take to answer a request.
	Timeout time.Duration
	// Received is called with the answer to each message that was published.
	Received func(m *natsclient.Msg, err error)
	// Denied is called with the subject on which this client may not publish.
	Denied func(subject string, err error)
	Log    *slog.Logger
}

// Dial connects once.
func Dial(cfg Config) (*Session, error) {
	s := &Session{Link: NewLink(), cfg: cfg, API: "$JS.API"}
	options := append([]natsclient.Option{
		natsclient.DisconnectErrHandler(func(_ *natsclient.Conn, err error) { s.Lost(err) }),
		natsclient.ReconnectHandler(func(*natsclient.Conn) { s.Connected() }),
		natsclient.ErrorHandler(func(_ *natsclient.Conn, _ *natsclient.Subscription, err error) { s.complained(err) }),
	}, cfg.Options...)
	var err error
	if s.Conn, err = natsclient.Connect(cfg.URL, options...); err != nil {
		return nil, err
	}
	if s.JS, err = s.jetStream(); err != nil {
		s.Conn.Close()
		return nil, err
	}
	s.Connected()
	return s, nil
}

func (s *Session) jetStream() (jetstream.JetStream, error) {
	options := []jetstream.JetStreamOpt{
		jetstream.WithPublishAsyncMaxPending(1 << 30), // the caller of Publish has a limit
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *natsclient.Msg, err error) { s.cfg.Received(m, err) }),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *natsclient.Msg, _ *jetstream.PubAck) { s.cfg.Received(m, nil) }),
	}
	if s.cfg.Domain != "" {
		s.API = "$JS." + s.cfg.Domain + ".API"
		return jetstream.NewWithDomain(s.Conn, s.cfg.Domain, options...)
	}
	return jetstream.New(s.Conn, options...)
}

// Ask sends a request about a stream, or about none. It ends when the time for it is over, or when the server does not permit it: then the error is
// [ErrDenied].
func (s *Session) Ask(ctx context.Context, stream string, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ctx, done := s.denials.watch(ctx, stream)
	defer done()
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrDenied) {
		return context.Cause(ctx)
	}
	return err
}

// Consumer returns a consumer as the server describes it now.
func (s *Session) Consumer(ctx context.Context, stream, name string) (c jetstream.Consumer, err error) {
	err = s.Ask(ctx, stream, func(ctx context.Context) (err error) {
		c, err = s.JS.Consumer(ctx, stream, name)
		return err
	})
	return c, err
}

// Stream returns a stream as the server describes it now.
func (s *Session) Stream(ctx context.Context, name string) (st jetstream.Stream, err error) {
	err = s.Ask(ctx, name, func(ctx context.Context) (err error) {
		st, err = s.JS.Stream(ctx, name)
		return err
	})
	return st, err
}

// complained is called with the errors that the server reports outside of any answer.
func (s *Session) complained(err error) {
	found := quoted.FindStringSubmatch(err.Error())
	if !errors.Is(err, natsclient.ErrPermissionViolation) || found == nil {
		s.cfg.Log.Warn("oncebox: the NATS server reports an error", "error", err)
		return
	}
	subject := found[2]
	s.denials.deny(subject, found[1] == "Subscription", err)
	s.cfg.Denied(subject, fmt.Errorf("%w: %w", ErrDenied, err))
}

// IsCut reports whether an error means that the connection was lost, or never was there.
func IsCut(err error) bool { return errors.Is(err, natsclient.ErrDisconnected) || WasNotSent(err) }

// WasNotSent reports whether the client did not even hand a message to the connection.
func WasNotSent(err error) bool {
	for _, cut := range []error{
		natsclient.ErrReconnectBufExceeded, natsclient.ErrConnectionClosed, natsclient.ErrConnectionReconnecting, natsclient.ErrConnectionDraining,
		natsclient.ErrInvalidConnection,
	} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}
