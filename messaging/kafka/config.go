package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

// The values of Config.Declare.
const (
	// Make makes topics that do not exist.
	Make = "make"
	// Check reports topics that do not exist as an error.
	Check = "check"
)

// The values of Config.SASL.
const (
	Plain    = "PLAIN"
	Scram256 = "SCRAM-SHA-256"
	Scram512 = "SCRAM-SHA-512"
)

// Config configures [Connect]. Only URL is required.
type Config struct {
	// URL has the addresses of some brokers of the cluster (bootstrap servers), host:9092, separated by commas. The client learns the other brokers from
	// them. Required.
	URL string `env:"URL"`
	// Prefix is put before the names of all topics and consumer groups, so that several systems can share a cluster. With "test." the topic order is
	// test.order. Prefix may have letters, digits, ".", "_" and "-". Default: none.
	Prefix string `env:"PREFIX"`
	// Name is the name of this process at the broker (client.id). Default: the name of the host.
	Name string `env:"NAME"`

	// Declare sets what happens if a topic does not exist. With "make" the topic is made, with Partitions, Replication and Retention. With "check" the
	// program gets an error, with the command that makes the topic. The broker's setting auto.create.topics.enable has no effect on topics of oncebox.
	// Default: make.
	Declare string `env:"DECLARE"`
	// Topics are the names of topics that are made or checked at the start, see Declare. Default: none.
	Topics []string `env:"TOPICS"`
	// Subscriptions are made at the start, with their topics. Messages that are published from then on wait for these subscriptions. Default: none.
	Subscriptions []messaging.Subscription
	// Partitions is the number of partitions of a new topic. At most this number of consumers of a subscription work at once. If partitions are added
	// later, a process uses them after its next start. Ordering keys then move to other partitions. Default: 4.
	Partitions int `env:"PARTITIONS"`
	// Replication is the number of copies of a new topic. In production use 3, and set min.insync.replicas of the topics to 2. Default: 0, and the
	// broker decides (default.replication.factor).
	Replication int `env:"REPLICATION"`
	// Retention is how long a new topic keeps messages (retention.ms), whether they were consumed or not. With -1 messages are kept for ever. A
	// subscription without a consumer for a longer time loses messages. Default: 0, and the broker decides (log.retention.ms, 7 days).
	Retention time.Duration `env:"RETENTION"`

	// MaxMessageBytes is the size of the largest message that is published, in bytes, uncompressed, with its headers. A larger message is refused
	// permanently. If max.message.bytes of the topic is less, max.message.bytes is the limit. Default: 1 MiB, the limit of a broker without settings.
	MaxMessageBytes int `env:"MAX_MESSAGE_BYTES"`
	// MaxReceivedBytes is the size of the largest message that is received, in bytes, uncompressed, with its headers. A larger message becomes a dead
	// letter with the beginning of its payload. Default: 16 MiB. With -1 there is no limit.
	MaxReceivedBytes int `env:"MAX_RECEIVED_BYTES"`
	// FetchBytes is how many bytes of compressed messages a receiver requests at once from each broker. About as many bytes wait in the memory of the
	// client, in addition to the messages of Subscription.Queue. Default: 4 MiB.
	FetchBytes int `env:"FETCH_BYTES"`
	// Producers is the number of calls of Publish that may send at once. Further calls wait. A call that sends has connections of its own. Default: 4.
	Producers int `env:"PRODUCERS"`

	// CommitInterval is the interval at which a consumer commits the offsets of its acknowledged messages. After a crash the broker delivers the
	// messages after the last commit again. Default: 1s.
	CommitInterval time.Duration `env:"COMMIT_INTERVAL"`
	// SessionTimeout is how long the broker waits for a consumer that has died, before other consumers get its partitions (session.timeout.ms). Unless
	// the broker is set otherwise, it allows 6s to 30m. Default: 20s.
	SessionTimeout time.Duration `env:"SESSION_TIMEOUT"`
	// HandoverTimeout is how long a partition waits for running handlers before it moves to another consumer. The message of a handler that runs longer
	// is also handled by the other consumer, perhaps at the same time. Default: 10s.
	HandoverTimeout time.Duration `env:"HANDOVER_TIMEOUT"`

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
	// PublishTimeout is the longest time for a call of Publish. If the deadline of the context is earlier, the call ends at that deadline. Default: 30s.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"`
	// CloseTimeout is how long Close waits for running calls to end. After that it waits as long again for the broker to answer. Default: 10s.
	CloseTimeout time.Duration `env:"CLOSE_TIMEOUT"`

	// SASL is the mechanism by which Username and Password authenticate this client: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Default: none, no
	// authentication by SASL.
	SASL string `env:"SASL"`
	// Username is the name by which this client authenticates itself, with SASL. Default: none.
	Username string `env:"USERNAME"`
	// Password is the password of Username. Default: none.
	Password string `env:"PASSWORD"`
	// PasswordFile is the path of a file with the password of Username, in place of Password. The file is read for each connection. Default: none.
	PasswordFile string `env:"PASSWORD_FILE"`
	// TLS makes all connections use TLS. TLS is also used if another setting whose name begins with TLS is set. Default: false.
	TLS bool `env:"TLS"`
	// TLSTrustCerts is the path of a PEM file. The file has the certificates of all authorities that the client trusts. Default: none, and the client
	// trusts the authorities of the operating system.
	TLSTrustCerts string `env:"TLS_TRUST_CERTS"`
	// TLSCert is the path of a file with the certificate that authenticates this client. TLSCert needs TLSKey. Default: none.
	TLSCert string `env:"TLS_CERT"`
	// TLSKey is the path of the file with the private key of TLSCert. Default: none.
	TLSKey string `env:"TLS_KEY"`
	// TLSAllowInsecure makes the client accept any certificate of the broker, so anybody can pretend to be the broker. Default: false.
	TLSAllowInsecure bool `env:"TLS_ALLOW_INSECURE"`

	// Telemetry sets where logs, traces and metrics go. The log has the warnings and errors of the client, which begin with "Kafka's client: ".
	// Payloads and headers are never logged. A trace has a span for each call of Publish. Default: that of the application, see
	// [messaging.Observed], else slog.Default() and the global providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about the same failure, at least 1s. The first failure is logged at once. If the failure repeats,
	// one line per LogInterval has the number of failures since the line before. Default: 1m. With -1 every failure is a line.
	LogInterval time.Duration `env:"LOG_INTERVAL"`

	dial        dial          // of tests; nil: the network
	metadataAge time.Duration // of tests; 0: the constant
}

// shortest is the shortest time that the client takes for SessionTimeout and OperationTimeout.
const shortest = 100 * time.Millisecond

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("kafka: Config")
	d.checkURL(check)
	check.That(d.Declare == Make || d.Declare == Check, "Declare", d.Declare, `give "make" or "check" (ONCEBOX_KAFKA_DECLARE)`)
	check.That(strings.Trim(d.Prefix, topics.Alphabet) == "", "Prefix", d.Prefix, "letters, digits, . _ and - are allowed (ONCEBOX_KAFKA_PREFIX)")
	check.That(d.Partitions >= 1, "Partitions", d.Partitions, "give 1 or more (ONCEBOX_KAFKA_PARTITIONS)")
	check.That(d.Replication >= 0 && d.Replication < 1<<15, "Replication", d.Replication,
		"give the number of copies, or 0 for that of the broker (ONCEBOX_KAFKA_REPLICATION)")
	check.That(d.Retention == -1 || d.Retention == 0 || d.Retention >= time.Millisecond, "Retention", d.Retention,
		"give a duration, -1 for ever, or 0 for that of the broker (ONCEBOX_KAFKA_RETENTION)")
	check.That(d.MaxMessageBytes >= 8<<10 && d.MaxMessageBytes <= 64<<20, "MaxMessageBytes", d.MaxMessageBytes,
		"give 8 KiB to 64 MiB (ONCEBOX_KAFKA_MAX_MESSAGE_BYTES)")
	check.That(d.MaxReceivedBytes == -1 || d.MaxReceivedBytes >= d.MaxMessageBytes, "MaxReceivedBytes", d.MaxReceivedBytes,
		"give MaxMessageBytes or more, or -1 for no limit (ONCEBOX_KAFKA_MAX_RECEIVED_BYTES)")
	check.That(d.FetchBytes >= 8<<10 && d.FetchBytes <= 64<<20, "FetchBytes", d.FetchBytes, "give 8 KiB to 64 MiB (ONCEBOX_KAFKA_FETCH_BYTES)")
	check.That(d.Producers >= 1, "Producers", d.Producers, "give 1 or more (ONCEBOX_KAFKA_PRODUCERS)")
	for field, v := range map[string]time.Duration{
		"CommitInterval": d.CommitInterval, "SessionTimeout": d.SessionTimeout, "HandoverTimeout": d.HandoverTimeout,
		"ConnectTimeout": d.ConnectTimeout, "ConnectionTimeout": d.ConnectionTimeout, "OperationTimeout": d.OperationTimeout,
		"PublishTimeout": d.PublishTimeout, "CloseTimeout": d.CloseTimeout,
	} {
		check.That(v > 0, field, v, "give a duration")
	}
	for field, v := range map[string]time.Duration{"SessionTimeout": d.SessionTimeout, "OperationTimeout": d.OperationTimeout} {
		check.That(v >= shortest, field, v, "the client needs 100ms or more")
	}
	check.That(d.LogInterval == -1 || d.LogInterval >= time.Second, "LogInterval", d.LogInterval, "give 1s or more, or -1 for every failure")
	d.checkCredentials(check)
	for _, topic := range d.Topics {
		check.Add(wrap("kafka: Config.Topics: "+topic, d.names().ValidateTopic(topic)))
	}
	for _, s := range d.Subscriptions {
		check.Add(wrap("kafka: Config.Subscriptions", d.names().ValidateSubscription(s)))
	}
	return check.Err()
}

func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

// checkURL recognizes addresses of other systems, and says what is expected.
func (c *Config) checkURL(check *configs.Check) {
	const advice = "give the addresses of brokers, host:9092, separated by commas (ONCEBOX_KAFKA_URL)"
	if at := strings.LastIndexByte(c.URL, '@'); at >= 0 { // a password may stand before it
		check.That(false, "URL", "xxxxx"+c.URL[at:], advice)
		return
	}
	hosts := c.hosts()
	if len(hosts) == 0 {
		check.Add(errors.New("kafka: Config.URL is empty: " + advice))
	}
	for _, host := range hosts {
		_, port, err := net.SplitHostPort(host)
		if !strings.Contains(host, ":") {
			port, err = "9092", nil
		}
		number, wrong := strconv.ParseUint(port, 10, 16)
		check.That(!strings.ContainsAny(host, "/ ") && err == nil && wrong == nil && number > 0, "URL", host, advice)
	}
}

// hosts returns the addresses of URL. A prefix kafka:// is left out.
func (c *Config) hosts() (hosts []string) {
	for host := range strings.SplitSeq(strings.TrimPrefix(c.URL, "kafka://"), ",") {
		if host = strings.TrimSpace(host); host != "" {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func (c *Config) checkCredentials(check *configs.Check) {
	check.That(slices.Contains([]string{"", Plain, Scram256, Scram512}, c.SASL), "SASL", c.SASL,
		"give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (ONCEBOX_KAFKA_SASL)")
	if c.SASL == "" && (c.Username != "" || c.Password != "" || c.PasswordFile != "") {
		check.Add(errors.New("kafka: Config.SASL is empty, so Username and Password are not used: give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 " +
			"(ONCEBOX_KAFKA_SASL)"))
	}
	if c.SASL != "" && (c.Username == "" || c.Password == "" && c.PasswordFile == "") {
		check.Add(errors.New("kafka: Config.SASL needs Username and Password (ONCEBOX_KAFKA_USERNAME, ONCEBOX_KAFKA_PASSWORD or " +
			"ONCEBOX_KAFKA_PASSWORD_FILE)"))
	}
	if c.Password != "" && c.PasswordFile != "" {
		check.Add(errors.New("kafka: Config.Password and PasswordFile are both set"))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		check.Add(errors.New("kafka: Config.TLSCert and TLSKey belong together"))
	}
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Declare = cmp.Or(out.Declare, Make)
	out.Partitions = cmp.Or(out.Partitions, 4)
	out.MaxMessageBytes = cmp.Or(out.MaxMessageBytes, 1<<20)
	out.MaxReceivedBytes = cmp.Or(out.MaxReceivedBytes, 16<<20)
	out.FetchBytes = cmp.Or(out.FetchBytes, 4<<20)
	out.Producers = cmp.Or(out.Producers, 4)
	out.CommitInterval = cmp.Or(out.CommitInterval, time.Second)
	out.SessionTimeout = cmp.Or(out.SessionTimeout, 20*time.Second)
	out.HandoverTimeout = cmp.Or(out.HandoverTimeout, 10*time.Second)
	out.ConnectTimeout = cmp.Or(out.ConnectTimeout, 30*time.Second)
	out.ConnectionTimeout = cmp.Or(out.ConnectionTimeout, 5*time.Second)
	out.OperationTimeout = cmp.Or(out.OperationTimeout, 10*time.Second)
	out.PublishTimeout = cmp.Or(out.PublishTimeout, 30*time.Second)
	out.CloseTimeout = cmp.Or(out.CloseTimeout, 10*time.Second)
	out.LogInterval = cmp.Or(out.LogInterval, quietlog.Interval)
	out.TLS = out.TLS || out.TLSAllowInsecure || out.TLSTrustCerts != "" || out.TLSCert != ""
	if out.Name == "" {
		out.Name, _ = os.Hostname() // an error leaves the name empty
	}
	return out
}

// protocol returns Kafka's name of what the client speaks (security.protocol).
func (c *Config) protocol() string {
	switch {
	case c.SASL != "" && c.TLS:
		return "SASL_SSL"
	case c.SASL != "":
		return "SASL_PLAINTEXT"
	case c.TLS:
		return "SSL"
	default:
		return "PLAINTEXT"
	}
}

func (c *Config) names() topics.Prefix { return topics.Prefix(c.Prefix) }

// keeper returns the part of the configuration that package topics needs.
func (c *Config) keeper() topics.Config {
	return topics.Config{
		Prefix: c.names(), Host: c.hosts()[0], User: c.Username, Check: c.Declare == Check,
		Partitions: c.Partitions, Replication: c.Replication, Retention: c.Retention,
	}
}
