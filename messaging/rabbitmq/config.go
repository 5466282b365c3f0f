package rabbitmq

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// The values of Config.Declare.
const (
	// Make makes exchanges, queues and bindings that do not exist.
	Make = "make"
	// Check makes nothing, and refuses a subscription whose exchange or queues do not exist.
	Check = "check"
)

// Config configures [Connect]. Only URL is required.
type Config struct {
	// URL is the address of the broker with user, password and virtual host: amqp://user:password@host:5672/vhost, or amqps:// with TLS. Special
	// characters are percent-encoded. A URL without a path names the default virtual host "/". The hosts of a cluster are separated by commas, and are
	// tried in turn. If the URL ends with ?auth_mechanism=external, the client authenticates itself by TLSCert (plugin rabbitmq_auth_mechanism_ssl).
	// Required.
	URL string `env:"URL"`
	// ManagementURL is the address of the management plugin of the broker, http://host:15672. The function Examine reads policies through this plugin,
	// because AMQP does not show them. Unless ManagementURL has a user and a password, those of URL are used. Default: none, Examine does not look at
	// policies.
	ManagementURL string `env:"MANAGEMENT_URL"`
	// Name is the name of this process at the broker. The names of its connections and consumers contain Name. Default: the name of the host.
	Name string `env:"NAME"`

	// Exchange is the name of the topic exchange to which all messages are published. The names of the exchanges and queues of subscriptions begin with
	// Exchange. Default: oncebox.
	Exchange string `env:"EXCHANGE"`
	// Queues is the number of queues of a new [messaging.Failover] subscription, at most 32. All messages of an ordering key go to one queue, and each
	// queue has one active consumer at a time. More queues handle more ordering keys side by side, and give the broker more consensus groups. If an
	// existing subscription has another number of queues, Subscribe and Declare return an error. Otherwise ordering keys would move to other queues and
	// lose their order. Default: 8.
	Queues int `env:"QUEUES"`
	// Declare says whether this program makes exchanges and queues ("make") or only checks that they exist ("check"). The check does not compare the
	// arguments of exchanges and queues, because AMQP does not show them. The check compares the owner of a subscription only if the user of the program
	// has the right to configure the subscription. The function Examine compares arguments and owner. Default: make.
	Declare string `env:"DECLARE"`
	// Subscriptions are made at the start. From then on the broker keeps messages for these subscriptions. Default: none.
	Subscriptions []messaging.Subscription

	// Prefetch is the number of messages that a receiver may have without an acknowledgement, in all queues of its subscription together. Each queue gets
	// an equal share of Prefetch, but at least Subscription.Queue. Default: 4000.
	Prefetch int `env:"PREFETCH"`
	// InFlight is how many messages of one topic a call of Publish sends before it waits for confirmations of the broker. Default: 256.
	InFlight int `env:"IN_FLIGHT"`
	// MaxMessageBytes is the size of the largest payload that is published, in bytes. A larger payload is refused permanently. MaxMessageBytes must
	// not be larger than max_message_size of the broker, which is 16 MiB in RabbitMQ 4 and 128 MiB in older versions. Default: 16 MiB.
	MaxMessageBytes int `env:"MAX_MESSAGE_BYTES"`

	// Required makes Connect return an error if the broker cannot be reached within ConnectTimeout. Default: false, Connect logs a warning and tries
	// again in the background.
	Required bool `env:"REQUIRED"`
	// ConnectTimeout is how long Subscribe and Declare, and with Required also Connect, try to reach a broker that is away before they return an error.
	// Default: 30s.
	ConnectTimeout time.Duration `env:"CONNECT_TIMEOUT"`
	// ConnectionTimeout is the longest time for one attempt to open a connection, with the handshakes of TLS and AMQP. Then the next attempt begins. An
	// open connection counts as lost if the broker accepts none of the program's data for ConnectionTimeout. Default: 10s.
	ConnectionTimeout time.Duration `env:"CONNECTION_TIMEOUT"`
	// Heartbeat is the interval at which client and broker send each other a sign of life. If two of these signs are missing, the connection is closed
	// and opened again. Default: 10s.
	Heartbeat time.Duration `env:"HEARTBEAT"`
	// PublishTimeout is the longest time for a call of Publish. If the deadline of the context is earlier, the call ends at that deadline. Default: 30s.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"`
	// CloseTimeout is how long Close waits for running calls to end. After that it waits as long again for the broker to answer. Default: 10s.
	CloseTimeout time.Duration `env:"CLOSE_TIMEOUT"`

	// Telemetry sets where logs, traces and metrics go. Payloads and headers are never logged. A trace has a span for each call of Publish. Default:
	// that of the application, see [messaging.Observed], else slog.Default() and the global providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about the same failure, at least 1s. The first failure is logged at once. If the failure repeats,
	// one line per LogInterval has the number of failures since the line before. Default: 1m. With -1 every failure is a line.
	LogInterval time.Duration `env:"LOG_INTERVAL"`

	// TLSTrustCerts is the path of a PEM file. The file has the certificates of all authorities that the client trusts. Default: none, and the client
	// trusts the authorities of the operating system.
	TLSTrustCerts string `env:"TLS_TRUST_CERTS"`
	// TLSCert is the path of a file with the certificate that authenticates this client. TLSCert needs TLSKey. Default: none.
	TLSCert string `env:"TLS_CERT"`
	// TLSKey is the path of the file with the private key of TLSCert. Default: none.
	TLSKey string `env:"TLS_KEY"`
	// TLSAllowInsecure makes the client accept any certificate of the broker, so anybody can pretend to be the broker. Default: false.
	TLSAllowInsecure bool `env:"TLS_ALLOW_INSECURE"`
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("rabbitmq: Config")
	check.Add(d.validateURLs())
	check.That(d.Exchange == strings.TrimSpace(d.Exchange) && len(d.Exchange) <= 60 && !strings.Contains(d.Exchange, separator) &&
		!strings.HasPrefix(d.Exchange, "amq."), "Exchange", d.Exchange,
		`give a name of at most 60 bytes without ":", that does not begin with "amq." (ONCEBOX_RABBITMQ_EXCHANGE)`)
	check.That(d.Queues >= 1 && d.Queues <= lanes, "Queues", d.Queues, fmt.Sprintf("give a number from 1 to %d (ONCEBOX_RABBITMQ_QUEUES)", lanes))
	check.That(d.Declare == Make || d.Declare == Check, "Declare", d.Declare, `give "make" or "check" (ONCEBOX_RABBITMQ_DECLARE)`)
	check.That(d.Prefetch >= 1, "Prefetch", d.Prefetch, "give a count of at least 1 (ONCEBOX_RABBITMQ_PREFETCH)")
	check.That(d.InFlight >= 1, "InFlight", d.InFlight, "give a count of at least 1 (ONCEBOX_RABBITMQ_IN_FLIGHT)")
	check.That(d.MaxMessageBytes >= 1, "MaxMessageBytes", d.MaxMessageBytes, "give a size in bytes (ONCEBOX_RABBITMQ_MAX_MESSAGE_BYTES)")
	for name, v := range map[string]time.Duration{
		"ConnectTimeout": d.ConnectTimeout, "ConnectionTimeout": d.ConnectionTimeout, "PublishTimeout": d.PublishTimeout, "CloseTimeout": d.CloseTimeout,
	} {
		check.That(v > 0, name, v, "give a duration")
	}
	check.That(d.Heartbeat >= time.Second, "Heartbeat", d.Heartbeat, "give 1s or more: AMQP counts it in seconds (ONCEBOX_RABBITMQ_HEARTBEAT)")
	check.That(d.LogInterval == -1 || d.LogInterval >= time.Second, "LogInterval", d.LogInterval, "give 1s or more, or -1 for every failure")
	for _, s := range d.Subscriptions {
		if err := d.names().validateSubscription(s); err != nil {
			check.Add(fmt.Errorf("rabbitmq: Config.Subscriptions: %w", err))
		}
	}
	if (d.TLSCert == "") != (d.TLSKey == "") {
		check.Add(errors.New("rabbitmq: Config.TLSCert and TLSKey belong together"))
	}
	return check.Err()
}

// validateURLs recognizes the usual mistake, the address of the management plugin in place of that of the broker, and says so.
func (c *Config) validateURLs() error {
	switch {
	case c.URL == "":
		return errors.New("rabbitmq: Config.URL is empty: give the broker's address, amqp://user:password@host:5672/vhost (ONCEBOX_RABBITMQ_URL)")
	case strings.HasPrefix(c.URL, "http://") || strings.HasPrefix(c.URL, "https://"):
		return fmt.Errorf("rabbitmq: Config.URL %q is that of a web server: give the broker's own address, which looks like amqp://host:5672 "+
			"(ONCEBOX_RABBITMQ_URL), and that of the management plugin as Config.ManagementURL (ONCEBOX_RABBITMQ_MANAGEMENT_URL)", adapters.Redacted(c.URL))
	}
	if _, err := c.addresses(); err != nil {
		return err
	}
	if c.ManagementURL == "" {
		return nil
	}
	if u, err := url.Parse(c.ManagementURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("rabbitmq: Config.ManagementURL %q does not look like http://host:15672 (ONCEBOX_RABBITMQ_MANAGEMENT_URL)",
			adapters.Redacted(c.ManagementURL))
	}
	return nil
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Exchange = cmp.Or(out.Exchange, "oncebox")
	out.Queues = cmp.Or(out.Queues, 8)
	out.Declare = cmp.Or(out.Declare, Make)
	out.Prefetch = cmp.Or(out.Prefetch, 4000)
	out.InFlight = cmp.Or(out.InFlight, 256)
	out.MaxMessageBytes = cmp.Or(out.MaxMessageBytes, 16<<20)
	out.ConnectTimeout = cmp.Or(out.ConnectTimeout, 30*time.Second)
	out.ConnectionTimeout = cmp.Or(out.ConnectionTimeout, 10*time.Second)
	out.Heartbeat = cmp.Or(out.Heartbeat, 10*time.Second)
	out.PublishTimeout = cmp.Or(out.PublishTimeout, 30*time.Second)
	out.CloseTimeout = cmp.Or(out.CloseTimeout, 10*time.Second)
	out.LogInterval = cmp.Or(out.LogInterval, quietlog.Interval)
	if out.Name == "" {
		out.Name, _ = os.Hostname() // an error leaves the name empty
	}
	return out
}
