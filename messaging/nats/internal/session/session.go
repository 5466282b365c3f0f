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

// errMute is an ErrDenied that concerns everything.
var errMute = fmt.Errorf("%w to receive answers: allow it to subscribe, or set Config.InboxPrefix (ONCEBOX_NATS_INBOX_PREFIX)", ErrDenied)

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
	acks    acks
}

// Config configures [Dial].
type Config struct {
	// URL is the address of the server, Options are the client's, and Domain is the JetStream domain, which may be empty.
	URL     string
	Options []natsclient.Option
	Domain  string
	// Timeout is how long the server may take to answer a request.
	Timeout time.Duration
	Log     *slog.Logger
}

// Dial connects once.
func Dial(cfg Config) (*Session, error) {
	s := &Session{Link: NewLink(), cfg: cfg, API: "$JS.API"}
	options := append([]natsclient.Option{
		natsclient.DisconnectErrHandler(func(_ *natsclient.Conn, err error) { s.cut(err) }),
		natsclient.ReconnectHandler(func(*natsclient.Conn) { s.Connected() }),
		natsclient.ErrorHandler(func(_ *natsclient.Conn, _ *natsclient.Subscription, err error) { s.complained(err) }),
	}, cfg.Options...)
	var err error
	if s.Conn, err = natsclient.Connect(cfg.URL, options...); err != nil {
		return nil, err
	}
	if err = s.acks.listen(s.Conn); err == nil {
		s.JS, err = s.jetStream()
	}
	if err != nil {
		s.Conn.Close()
		return nil, err
	}
	s.Connected()
	return s, nil
}

func (s *Session) jetStream() (jetstream.JetStream, error) {
	if s.cfg.Domain != "" {
		s.API = "$JS." + s.cfg.Domain + ".API"
		return jetstream.NewWithDomain(s.Conn, s.cfg.Domain)
	}
	return jetstream.New(s.Conn)
}

// Publish sends a message to a stream, and calls receipt once with the outcome, in any goroutine: with nil when the message is stored. The caller may
// use the message again. The number is for [Session.Forget].
func (s *Session) Publish(m *natsclient.Msg, receipt func(error)) (number uint64) {
	return s.acks.publish(m, receipt)
}

// Forget makes sure that the receipts of messages are not called any more, apart from calls that are under way.
func (s *Session) Forget(numbers []uint64) { s.acks.forget(numbers) }

// cut is called when the connection was lost, and with it the answers to all messages that were sent over it.
func (s *Session) cut(why error) {
	s.Lost(why)
	s.silence(nil) // the next connection may have other permissions
	s.acks.end("", natsclient.ErrDisconnected)
}

// silence notes why no answer can come.
func (s *Session) silence(why error) {
	s.denials.silence(why)
	s.acks.silence(why)
}

// Ask sends a request about a stream, or about none. It ends when the time for it is over, or when the server does not permit it: then the error is
// [ErrDenied].
func (s *Session) Ask(ctx context.Context, stream string, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ctx, done := s.Watch(ctx, stream)
	defer done()
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrDenied) {
		return context.Cause(ctx)
	}
	return err
}

// Watch returns a context that ends with the cause [ErrDenied] if the server does not permit something about a stream, or about none.
func (s *Session) Watch(ctx context.Context, stream string) (_ context.Context, done func()) {
	return s.denials.watch(ctx, stream)
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
	s.cfg.Log.Warn("oncebox: the NATS server reports an error", "error", err)
	found := quoted.FindStringSubmatch(err.Error())
	if !errors.Is(err, natsclient.ErrPermissionViolation) || found == nil {
		return
	}
	switch subject := found[2]; {
	case found[1] == "Publish":
		denied := fmt.Errorf("%w: %w", ErrDenied, err)
		s.denials.deny(subject, denied)
		s.acks.end(subject, denied)
	case s.acks.isInbox(subject):
		s.silence(fmt.Errorf("%w: %w", errMute, err))
	}
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
