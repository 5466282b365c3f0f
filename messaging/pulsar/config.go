package pulsar

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

// Config configures [Connect]. Only URL is required.
type Config struct {
	// URL is the address of the broker: pulsar://host:6650, or pulsar+ssl://host:6651. Several hosts are separated by commas. Required.
	URL string `env:"URL"`
	// AdminURL is the address of the broker's admin API. oncebox makes topics and subscriptions through this API, and shows their state. Without the
	// admin API the broker makes topics and subscriptions at their first use, and topics get no partitions. If the API gives no answer for AdminTimeout,
	// oncebox does not ask it again for a minute. Publishing does not wait for the API. A user and a password in AdminURL are sent (Basic) if Token and
	// TokenFile are not set. Default: the first host of URL, with port 8080 and http, or with port 8443 and https if URL is pulsar+ssl.
	AdminURL string `env:"ADMIN_URL"`
	// AdminTimeout is how long the program waits at its start for the admin API, which may come up later than the broker. Then the program goes on
	// without the API. Default: 2s, and 20s if AdminURL is set.
	AdminTimeout time.Duration `env:"ADMIN_TIMEOUT"`
	// Tenant is the name of the Pulsar tenant that has the namespace. A tenant of Pulsar has nothing to do with the tenants of the service. Default:
	// public.
	Tenant string `env:"TENANT"`
	// Namespace is the name of the Pulsar namespace that has all topics. Default: default.
	Namespace string `env:"NAMESPACE"`
	// Name is the name of this process at the broker. The name of each of its connections to a subscription begins with it. Pulsar gives out partitions
	// and ordering keys by these names: if a process has the same name after a restart, few keys move to other processes. Default: the name of the host.
	Name string `env:"NAME"`

	// Topics are the names of topics that are made at the start, with Partitions. An existing topic is used as it is. Name every topic to which the
	// program publishes: a topic that is made by publishing has one partition and no subscription. Default: none.
	Topics []string `env:"TOPICS"`
	// Partitions is the number of partitions of a new topic. At most this number of consumers of a [messaging.Failover] subscription work at once. If
	// partitions are added later, ordering keys move to other partitions. The events of a key may come out of order at that moment. Default: 4.
	Partitions int `env:"PARTITIONS"`
	// Subscriptions are made at the start, with their topics. From then on the broker keeps messages for these subscriptions. Default: none.
	Subscriptions []messaging.Subscription
	// DisableBatching sends each message by itself and not in batches, which makes publishing three times as slow. A topic with a [messaging.KeyShared]
	// subscription must get no batches, from any program that publishes to it. If DisableBatching is false, the program sends no batches to a topic if
	// it knows a KeyShared subscription of the topic. The program knows the subscriptions that it has declared or subscribed itself. It also asks the
	// broker for subscriptions, when it begins to publish to a topic and once per AudienceInterval. The answer has only subscriptions that oncebox has
	// declared, and subscriptions with a consumer. Default: false.
	DisableBatching bool `env:"DISABLE_BATCHING"`
	// Producers is the number of calls of Publish that may send to one topic at once. Further calls wait. Default: 4.
	Producers int `env:"PRODUCERS"`
	// ProducerIdle is how long an unused producer is kept before it is closed. An idle producer costs some CPU. A new producer costs some milliseconds.
	// Default: 1m. With -1 producers are kept for ever.
	ProducerIdle time.Duration `env:"PRODUCER_IDLE"`
	// AudienceInterval is the interval at which the program checks that the topics to which it publishes still have their subscriptions. With -1 it
	// checks only before the first message. Without a subscription the broker may delete messages before anybody has received them. The check uses the
	// admin API. Default: 1m.
	AudienceInterval time.Duration `env:"AUDIENCE_INTERVAL"`
	// MaxMessageBytes must be equal to the setting maxMessageSize of the broker, in bytes. A message that may be larger than MaxMessageBytes, with its
	// properties, is refused permanently when it is published. If a received message came in chunks and is not larger than MaxMessageBytes, it becomes a
	// dead letter: it needed no chunks, so its first chunks may be missing. If MaxMessageBytes is larger than maxMessageSize, complete messages become
	// dead letters, too. If maxMessageSize is also below 256 KiB, batches may be too large for the broker, and the order of an ordering key may break.
	// Default: 5 MiB.
	MaxMessageBytes int `env:"MAX_MESSAGE_BYTES"`

	// MaxReceivedBytes is the size of the largest message that is received, in bytes, uncompressed, with its properties. With -1 there is no limit. A
	// message that is larger than MaxReceivedBytes becomes a dead letter with the beginning of its payload. MaxMessageBytes does not limit the size of
	// received messages, because a compressed message can become hundreds of times larger. Default: 16 MiB.
	MaxReceivedBytes int `env:"MAX_RECEIVED_BYTES"`

	// Required makes Connect return an error if the broker cannot be reached within ConnectTimeout. Default: false, Connect logs a warning and tries
	// again in the background.
	Required bool `env:"REQUIRED"`
	// ConnectTimeout is how long Subscribe and Declare, and with Required also Connect, try to reach a broker that is away before they return an error.
	// Default: 30s.
	ConnectTimeout time.Duration `env:"CONNECT_TIMEOUT"`
	// ConnectionTimeout is the longest time for one attempt to open a TCP connection. Then the next attempt begins. Default: 5s.
	ConnectionTimeout time.Duration `env:"CONNECTION_TIMEOUT"`
	// OperationTimeout is how long the broker may take to answer a request before the request fails. Default: 10s.
	OperationTimeout time.Duration `env:"OPERATION_TIMEOUT"`
	// KeepAliveInterval is the interval at which the client sends a probe on each connection. After two probes without an answer the connection is
	// closed and opened again. Default: 10s.
	KeepAliveInterval time.Duration `env:"KEEP_ALIVE_INTERVAL"`
	// PublishTimeout is the longest time for a call of Publish. If the deadline of the context is earlier, the call ends at that deadline. Default: 30s.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"`
	// CloseTimeout is how long Close waits for running calls to end. After that it waits as long again for the broker to answer. Default: 10s.
	CloseTimeout time.Duration `env:"CLOSE_TIMEOUT"`

	// Token is a JSON Web Token that authenticates this client. Default: none, no authentication.
	Token string `env:"TOKEN"`
	// TokenFile is the path of a file with the token, in place of Token. The file is read each time that the token is sent. Default: none.
	TokenFile string `env:"TOKEN_FILE"`
	// TLSTrustCerts is the path of a PEM file. The file has the certificates of all authorities that the client trusts. Default: none, and the client
	// trusts the authorities of the operating system.
	TLSTrustCerts string `env:"TLS_TRUST_CERTS"`
	// TLSCert is the path of a file with the certificate that authenticates this client. TLSCert needs TLSKey. Default: none.
	TLSCert string `env:"TLS_CERT"`
	// TLSKey is the path of the file with the private key of TLSCert. Default: none.
	TLSKey string `env:"TLS_KEY"`
	// TLSAllowInsecure makes the client accept any certificate of the broker, so anybody can pretend to be the broker. Default: false.
	TLSAllowInsecure bool `env:"TLS_ALLOW_INSECURE"`

	// Telemetry sets where logs, traces and metrics go. The log has the warnings and errors of Pulsar's client, which begin with "Pulsar's client: "
	// and name the component that uses it; lines of the client at info level are logged as debug. Payloads and properties are never logged. A trace
	// has a span for each call of Publish. Default: that of the application, see [messaging.Observed], else slog.Default() and the global providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about the same failure, at least 1s. The first failure is logged at once. If the failure repeats,
	// one line per LogInterval has the number of failures since the line before. Default: 1m. With -1 every failure is a line.
	LogInterval time.Duration `env:"LOG_INTERVAL"`
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("pulsar: Config")
	check.Add(d.validateURLs())
	check.That(d.Partitions >= 1, "Partitions", d.Partitions, "give 1 or more (ONCEBOX_PULSAR_PARTITIONS)")
	check.That(d.Producers >= 1, "Producers", d.Producers, "give 1 or more (ONCEBOX_PULSAR_PRODUCERS)")
	check.That(d.MaxMessageBytes >= 8<<10, "MaxMessageBytes", d.MaxMessageBytes, "give 8 KiB or more (ONCEBOX_PULSAR_MAX_MESSAGE_BYTES)")
	check.That(d.MaxReceivedBytes == -1 || d.MaxReceivedBytes >= d.MaxMessageBytes, "MaxReceivedBytes", d.MaxReceivedBytes,
		fmt.Sprintf("give MaxMessageBytes (%d) or more, or -1 for no limit (ONCEBOX_PULSAR_MAX_RECEIVED_BYTES)", d.MaxMessageBytes))
	for name, v := range map[string]time.Duration{
		"ConnectTimeout": d.ConnectTimeout, "AdminTimeout": d.AdminTimeout, "ConnectionTimeout": d.ConnectionTimeout, "OperationTimeout": d.OperationTimeout,
		"KeepAliveInterval": d.KeepAliveInterval, "PublishTimeout": d.PublishTimeout, "CloseTimeout": d.CloseTimeout,
	} {
		check.That(v > 0, name, v, "give a duration")
	}
	check.That(d.ProducerIdle >= -1, "ProducerIdle", d.ProducerIdle, "give a duration, or -1 for ever")
	check.That(d.LogInterval == -1 || d.LogInterval >= time.Second, "LogInterval", d.LogInterval, "give 1s or more, or -1 for every failure")
	check.That(d.AudienceInterval >= -1, "AudienceInterval", d.AudienceInterval, "give a duration, or -1 for never")
	for name, v := range map[string]string{"Tenant": d.Tenant, "Namespace": d.Namespace} {
		// These are the characters that Pulsar allows in names of tenants and namespaces.
		check.That(regexp.MustCompile(`^[-=:.\w]+$`).MatchString(v), name, v, "letters, digits and -=:._ are allowed")
	}
	for _, topic := range d.Topics {
		if err := topics.ValidateTopic(topic); err != nil {
			check.Add(fmt.Errorf("pulsar: Config.Topics: %q: %w", topic, err))
		}
	}
	for _, s := range d.Subscriptions {
		if err := topics.ValidateSubscription(s); err != nil {
			check.Add(fmt.Errorf("pulsar: Config.Subscriptions: %w", err))
		}
	}
	if d.Token != "" && d.TokenFile != "" {
		check.Add(errors.New("pulsar: Config.Token and TokenFile are both set"))
	}
	if (d.TLSCert == "") != (d.TLSKey == "") {
		check.Add(errors.New("pulsar: Config.TLSCert and TLSKey belong together"))
	}
	return check.Err()
}

// validateURLs recognizes the usual mistake, the address of the admin API in place of that of the broker, and says so.
func (c *Config) validateURLs() error {
	if c.URL == "" {
		return errors.New("pulsar: Config.URL is empty: give the broker's address, pulsar://host:6650 (ONCEBOX_PULSAR_URL)")
	}
	if strings.HasPrefix(c.URL, "http://") || strings.HasPrefix(c.URL, "https://") {
		return fmt.Errorf("pulsar: Config.URL %q is that of a web server: give the broker's own address, which looks like pulsar://host:6650 "+
			"(ONCEBOX_PULSAR_URL), and that of the admin API as Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)", adapters.Redacted(c.URL))
	}
	if !strings.HasPrefix(c.URL, "pulsar://") && !strings.HasPrefix(c.URL, "pulsar+ssl://") || c.AdminURL == "" {
		return fmt.Errorf("pulsar: Config.URL %q does not look like pulsar://host:6650 or pulsar+ssl://host:6651 (ONCEBOX_PULSAR_URL)",
			adapters.Redacted(c.URL))
	}
	if u, err := url.Parse(c.AdminURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("pulsar: Config.AdminURL %q does not look like http://host:8080 (ONCEBOX_PULSAR_ADMIN_URL)", adapters.Redacted(c.AdminURL))
	}
	return nil
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Partitions = cmp.Or(out.Partitions, 4)
	out.Producers = cmp.Or(out.Producers, 4)
	out.MaxMessageBytes = cmp.Or(out.MaxMessageBytes, 5<<20)
	out.MaxReceivedBytes = cmp.Or(out.MaxReceivedBytes, 16<<20)
	out.ConnectTimeout = cmp.Or(out.ConnectTimeout, 30*time.Second)
	out.ConnectionTimeout = cmp.Or(out.ConnectionTimeout, 5*time.Second)
	out.OperationTimeout = cmp.Or(out.OperationTimeout, 10*time.Second)
	out.KeepAliveInterval = cmp.Or(out.KeepAliveInterval, 10*time.Second)
	out.PublishTimeout = cmp.Or(out.PublishTimeout, 30*time.Second)
	out.CloseTimeout = cmp.Or(out.CloseTimeout, 10*time.Second)
	out.ProducerIdle = cmp.Or(out.ProducerIdle, time.Minute)
	out.AudienceInterval = cmp.Or(out.AudienceInterval, time.Minute)
	out.LogInterval = cmp.Or(out.LogInterval, quietlog.Interval)
	out.Tenant = cmp.Or(out.Tenant, "public")
	out.Namespace = cmp.Or(out.Namespace, "default")
	patience := 20 * time.Second
	if out.AdminURL == "" {
		out.AdminURL, patience = adminURL(out.URL), 2*time.Second
	}
	out.AdminTimeout = cmp.Or(out.AdminTimeout, patience)
	out.AdminURL = strings.TrimSuffix(out.AdminURL, "/")
	if out.Name == "" {
		out.Name, _ = os.Hostname() // an error leaves the name empty
	}
	return out
}

// keeper returns the part of the configuration that package topics needs.
func (c *Config) keeper() *topics.Config {
	return &topics.Config{
		URL: adapters.Redacted(c.URL), AdminURL: c.AdminURL, AdminTimeout: c.AdminTimeout, Tenant: c.Tenant, Namespace: c.Namespace, Partitions: c.Partitions,
		AudienceInterval: c.AudienceInterval, OperationTimeout: c.OperationTimeout, Token: c.Token, TokenFile: c.TokenFile,
		TLSTrustCerts: c.TLSTrustCerts, TLSCert: c.TLSCert, TLSKey: c.TLSKey, TLSAllowInsecure: c.TLSAllowInsecure,
	}
}

// adminURL guesses the address of the admin API, "" if there is nothing to guess from.
func adminURL(brokers string) string {
	first, _, _ := strings.Cut(brokers, ",")
	u, err := url.Parse(first)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	if u.Scheme == "pulsar+ssl" {
		return "https://" + net.JoinHostPort(u.Hostname(), "8443")
	}
	return "http://" + net.JoinHostPort(u.Hostname(), "8080")
}
