package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/oncebox/oncebox/internal/adapters"
)

// metadataPause is the shortest time between two questions of a client about the places of partitions. The client's default, 5s, would be added to the time
// without a leader after a broker has failed, and to the making of each topic.
const metadataPause = 100 * time.Millisecond

// metadataAge is the longest time between two such questions. A client learns by them that a topic has got partitions.
const metadataAge = time.Minute

// clientOptions returns what the clients of a broker have in common.
func (c *Config) clientOptions(secure *tls.Config, log *slog.Logger, more ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.hosts()...),
		kgo.ClientID(c.Name),
		kgo.SoftwareNameAndVersion("oncebox", "1"),
		kgo.WithLogger(clientLog{log}),
		kgo.MetadataMinAge(metadataPause), kgo.MetadataMaxAge(cmp.Or(c.metadataAge, metadataAge)),
		kgo.RequestTimeoutOverhead(c.OperationTimeout),
		kgo.DisableClientMetrics(), // Close would wait a second for their last report
	}
	opts = append(opts, kgo.Dialer(c.dialer(secure)))
	if m := c.mechanism(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return append(opts, more...)
}

// dial makes a connection.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// dialer returns how connections are made.
func (c *Config) dialer(secure *tls.Config) dial {
	dialer := &net.Dialer{Timeout: c.ConnectionTimeout}
	switch {
	case c.dial != nil:
		return c.dial
	case secure != nil:
		return (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext
	default:
		return dialer.DialContext
	}
}

// mechanism returns how the client authenticates itself; nil without SASL.
func (c *Config) mechanism() sasl.Mechanism {
	switch c.SASL {
	case Plain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := c.password()
			return plain.Auth{User: c.Username, Pass: password}, err
		})
	case Scram256:
		return scram.Sha256(c.scram)
	case Scram512:
		return scram.Sha512(c.scram)
	default:
		return nil
	}
}

func (c *Config) scram(context.Context) (scram.Auth, error) {
	password, err := c.password()
	return scram.Auth{User: c.Username, Pass: password}, err
}

// password reads the file each time, so that a password may change while the program runs.
func (c *Config) password() (string, error) {
	if c.PasswordFile == "" {
		return c.Password, nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("kafka: Config.PasswordFile (ONCEBOX_KAFKA_PASSWORD_FILE): %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// tlsConfig returns the settings of TLS; nil without it.
func (c *Config) tlsConfig() (*tls.Config, error) {
	if !c.TLS {
		return nil, nil //nolint:nilnil // no TLS
	}
	out, err := adapters.TLS{TrustCerts: c.TLSTrustCerts, Cert: c.TLSCert, Key: c.TLSKey, AllowInsecure: c.TLSAllowInsecure}.Load()
	return out, wrap("kafka (ONCEBOX_KAFKA_TLS_...)", err)
}
