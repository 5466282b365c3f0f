package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/internal/adapters"
)

// addresses returns a URL for each host of Config.URL.
func (c *Config) addresses() ([]string, error) {
	wrong := fmt.Errorf("rabbitmq: Config.URL %q does not look like amqp://user:password@host:5672/vhost or amqps://host:5671 "+
		"(ONCEBOX_RABBITMQ_URL)", adapters.Redacted(c.URL))
	scheme, rest, ok := strings.Cut(c.URL, "://")
	if !ok {
		return nil, wrong
	}
	hosts, path := rest, ""
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		hosts, path = rest[:end], rest[end:]
	}
	user := ""
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		user, hosts = hosts[:at+1], hosts[at+1:]
	}
	var all []string
	for host := range strings.SplitSeq(hosts, ",") {
		address := scheme + "://" + user + host + path
		if uri, err := amqp.ParseURI(address); err != nil || uri.Host == "" || host == "" {
			return nil, wrong // without the reason, which may have the password in it
		}
		all = append(all, address)
	}
	return all, nil
}

// tls returns the settings of connections with TLS.
func (c *Config) tls() (*tls.Config, error) {
	settings, err := adapters.TLS{
		TrustCerts: c.TLSTrustCerts, Cert: c.TLSCert, Key: c.TLSKey, AllowInsecure: c.TLSAllowInsecure,
	}.Load()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	return settings, nil
}

// dialer opens connections.
type dialer struct {
	addresses []string
	timeout   time.Duration
	heartbeat time.Duration
	tls       *tls.Config
}

// dial tries the hosts in turn. name is the name of the connection at the broker.
func (d *dialer) dial(ctx context.Context, name string) (*session, error) {
	var errs []error
	for _, address := range d.addresses {
		s, err := d.dialOne(ctx, address, name)
		if err == nil {
			return s, nil
		}
		if u, parseErr := url.Parse(address); parseErr == nil {
			err = fmt.Errorf("%s: %w", u.Host, err)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (d *dialer) dialOne(ctx context.Context, address, name string) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	s, err := d.handshake(ctx, address, name)
	// RabbitMQ hangs up at a wrong password, and the client takes each connection that is lost at this step for that.
	if errors.Is(err, amqp.ErrCredentials) {
		s, err = d.handshake(ctx, address, name)
	}
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, amqp.ErrVhost): // RabbitMQ's own answer is another one, so the connection was lost
		return nil, errors.New("the connection was lost in its handshake")
	default:
		return nil, err
	}
}

// handshake opens a connection. The client's call cannot be cancelled, so the connection is closed under it when ctx is done.
func (d *dialer) handshake(ctx context.Context, address, name string) (*session, error) {
	var link *patientConn
	stop := func() bool { return true }
	conn, err := amqp.DialConfig(address, amqp.Config{
		Heartbeat:       d.heartbeat,
		TLSClientConfig: d.tls.Clone(), // the client writes the name of the host into it, if the address has TLS
		Properties:      amqp.Table{"product": "oncebox", "platform": "Go", "connection_name": name},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			link = &patientConn{Conn: conn, timeout: d.timeout}
			stop = context.AfterFunc(ctx, link.sever)
			return link, nil
		},
	})
	stop()
	if err != nil {
		if link != nil {
			link.sever() // the client leaves it open after some errors
		}
		return nil, err
	}
	return newSession(conn, link), nil
}

// patientConn is a connection whose writes end. While the broker has an alarm it reads nothing from publishers, and a write of the client would
// wait for ever, with a lock that the client needs to close the connection.
type patientConn struct {
	net.Conn

	timeout time.Duration
}

// sever ends the connection at once, whatever the client is doing with it.
func (c *patientConn) sever() { _ = c.Close() }

func (c *patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
