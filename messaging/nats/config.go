package nats

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
	"github.com/oncebox/oncebox/telemetry"
)

// The values of Config.Declare.
const (
	// Make makes streams and consumers that do not exist.
	Make = "make"
	// Check only checks them, and reports as an error what is missing.
	Check = "check"
)

// Config configures [Connect]. Only URL is required.
type Config struct {
	// URL is the address of the server: nats://host:4222, or tls://host:4222. Several servers of one cluster are separated by commas. The address may
	// have a user and a password. Required.
	URL string `env:"URL"`
	// Name is the name of this process at the server, and the beginning of the names of its consumers. Give a process the same name after a restart.
	// Then few partitions move to other processes. Default: the name of the host.
	Name string `env:"NAME"`
	// Prefix is the first part of the names of streams and subjects: a topic "order" is the stream oncebox-order with the subjects oncebox.order.0,
	// oncebox.order.1 and so on. Default: oncebox.
	Prefix string `env:"PREFIX"`
	// Domain is the JetStream domain to use, if the program connects to a leaf node. Default: none.
	Domain string `env:"DOMAIN"`
	// InboxPrefix is the beginning of the subjects on which this client receives answers. Set InboxPrefix if the user of the client may not subscribe to
	// _INBOX. Default: _INBOX.
	InboxPrefix string `env:"INBOX_PREFIX"`

	// Declare says whether this program makes streams and consumers ("make") or only checks them ("check"). With "make" the program makes missing
	// streams and consumers. With "check" a missing stream or consumer is an error. With both it is an error if an existing stream or consumer has a
	// setting that breaks the guarantees of oncebox. Default: make.
	Declare string `env:"DECLARE"`
	// Topics are the names of topics that are made at the start. Other topics are made when they are first used. Default: none.
	Topics []string `env:"TOPICS"`
	// Subscriptions are made at the start, with their topics. Default: none.
	Subscriptions []messaging.Subscription
	// Partitions is the number of subjects of a new topic. At most this number of processes of a [messaging.Failover] subscription work at once. Each
	// subscription has a consumer of NATS for each partition. In a cluster each of these consumers is a Raft group, so choose no more partitions than
	// you need. Partitions does not change an existing topic, because the order of ordering keys would break. Default: 8.
	Partitions int `env:"PARTITIONS"`
	// Replicas is the number of servers that store a new topic. Set Replicas if the program connects to a leaf node, because the default depends on the
	// server to which the program connects. Default: 3 in a cluster, 1 on a single server.
	Replicas int `env:"REPLICAS"`
	// MaxAge is how long a new topic keeps messages before it deletes them, whether they were received or not. With -1 messages are kept for ever. Choose
	// a shorter time than inbox.Config.Retention, and a longer time than any outage of a consumer. Default: 168h, a week.
	MaxAge time.Duration `env:"MAX_AGE"`
	// MaxBytes is the largest size of a new topic, in bytes. If a topic is full, the server refuses messages for it, and they wait in the outbox.
	// Default: 0, no limit.
	MaxBytes int64 `env:"MAX_BYTES"`
	// DuplicateWindow is how long a new topic recognizes a copy of a message, and does not store the copy. The relay publishes a message again if it was
	// not confirmed within PublishTimeout. So DuplicateWindow must be longer than PublishTimeout. The server keeps about 100 bytes in memory for each
	// message of DuplicateWindow. Default: 5m.
	DuplicateWindow time.Duration `env:"DUPLICATE_WINDOW"`
	// TakeoverTimeout is how long the server waits for a process that gives no sign of life, before other processes get its messages. With
	// [messaging.Failover] the other processes get the partitions of the process, with [messaging.Shared] the messages that the process has not
	// acknowledged. A new value has no effect on existing consumers of NATS, because the server stores TakeoverTimeout when it makes a consumer.
	// Default: 15s.
	TakeoverTimeout time.Duration `env:"TAKEOVER_TIMEOUT"`
	// HandoverTimeout is how long a process waits for its running handlers before it gives a partition to another process. The message of a handler that
	// runs longer is also handled by the other process. Default: 10s. With -1 the process does not wait.
	HandoverTimeout time.Duration `env:"HANDOVER_TIMEOUT"`
	// InFlight is how many messages of one topic a call of Publish sends before it waits for confirmations of the server. Default: 1000.
	InFlight int `env:"IN_FLIGHT"`

	// Required makes Connect return an error if the server cannot be reached within ConnectTimeout. Default: false, Connect logs a warning and tries
	// again in the background.
	Required bool `env:"REQUIRED"`
	// ConnectTimeout is how long Subscribe and Declare, and with Required also Connect, try to reach a server that is away before they return an error.
	// Default: 30s.
	ConnectTimeout time.Duration `env:"CONNECT_TIMEOUT"`
	// ConnectionTimeout is the longest time for one attempt to open a connection. Then the next attempt begins. Default: 5s.
	ConnectionTimeout time.Duration `env:"CONNECTION_TIMEOUT"`
	// OperationTimeout is how long the server may take to answer a request before the request fails. Default: 10s.
	OperationTimeout time.Duration `env:"OPERATION_TIMEOUT"`
	// PingInterval is the interval at which the client sends a probe to the server. After two probes without an answer the connection is closed and
	// opened again. Default: 10s.
	PingInterval time.Duration `env:"PING_INTERVAL"`
	// PublishTimeout is the longest time for a call of Publish. If the deadline of the context is earlier, the call ends at that deadline. Default: 30s.
	PublishTimeout time.Duration `env:"PUBLISH_TIMEOUT"`
	// CloseTimeout is how long Close waits for running calls to end. After that it waits as long again for the server to answer. Default: 10s.
	CloseTimeout time.Duration `env:"CLOSE_TIMEOUT"`

	// User is the name by which this client authenticates itself, with Password. Default: the user in URL.
	User string `env:"USER"`
	// Password is the password of User. Default: the password in URL.
	Password string `env:"PASSWORD"`
	// Token is the token by which this client authenticates itself. Default: none.
	Token string `env:"TOKEN"`
	// NKeyFile is the path of a file with the seed of the NKey by which this client authenticates itself. Default: none.
	NKeyFile string `env:"NKEY_FILE"`
	// CredsFile is the path of a file with the JWT and the seed of a user, as nsc writes it. This client authenticates itself as this user. Default:
	// none.
	CredsFile string `env:"CREDS_FILE"`
	// TLSTrustCerts is the path of a PEM file. The file has the certificates of all authorities that the client trusts. Default: none, and the client
	// trusts the authorities of the operating system.
	TLSTrustCerts string `env:"TLS_TRUST_CERTS"`
	// TLSCert is the path of a file with the certificate that authenticates this client. TLSCert needs TLSKey. Default: none.
	TLSCert string `env:"TLS_CERT"`
	// TLSKey is the path of the file with the private key of TLSCert. Default: none.
	TLSKey string `env:"TLS_KEY"`
	// TLSAllowInsecure makes the client accept any certificate of the server, so anybody can pretend to be the server. Default: false.
	TLSAllowInsecure bool `env:"TLS_ALLOW_INSECURE"`

	// Telemetry sets where logs, traces and metrics go. Payloads and headers are never logged. A trace has a span for each call of Publish. Default:
	// that of the application, see [messaging.Observed], else slog.Default() and the global providers.
	Telemetry telemetry.Config
	// LogInterval is the time between two log lines about the same failure, at least 1s. The first failure is logged at once. If the failure repeats,
	// one line per LogInterval has the number of failures since the line before. Default: 1m. With -1 every failure is a line.
	LogInterval time.Duration `env:"LOG_INTERVAL"`
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	d := c.WithDefaults()
	check := configs.CheckOf("nats: Config")
	check.Add(d.validateURL())
	check.That(regexp.MustCompile(`^[-\w]+(\.[-\w]+)*$`).MatchString(d.Prefix), "Prefix", d.Prefix,
		"letters, digits, - and _ are allowed, and dots between them")
	check.That(d.Declare == Make || d.Declare == Check, "Declare", d.Declare, `give "make" or "check" (ONCEBOX_NATS_DECLARE)`)
	check.That(d.Partitions >= 1 && d.Partitions <= 1024, "Partitions", d.Partitions, "give a count from 1 to 1024 (ONCEBOX_NATS_PARTITIONS)")
	check.That(d.Replicas >= 0 && d.Replicas <= 5, "Replicas", d.Replicas, "give a count from 1 to 5, or 0 for the default")
	check.That(d.MaxAge == -1 || d.MaxAge >= time.Minute, "MaxAge", d.MaxAge, "give 1m or more, or -1 to keep messages for ever")
	check.That(d.MaxBytes >= 0, "MaxBytes", d.MaxBytes, "give a number of bytes, or 0 for no limit")
	check.That(d.DuplicateWindow > d.PublishTimeout, "DuplicateWindow", d.DuplicateWindow,
		fmt.Sprintf("give more than PublishTimeout, which is %s (ONCEBOX_NATS_DUPLICATE_WINDOW)", d.PublishTimeout))
	check.That(d.MaxAge == -1 || d.DuplicateWindow <= d.MaxAge, "DuplicateWindow", d.DuplicateWindow, "the server allows no more than MaxAge")
	check.That(d.TakeoverTimeout >= time.Second, "TakeoverTimeout", d.TakeoverTimeout, "give 1s or more")
	check.That(d.HandoverTimeout >= -1, "HandoverTimeout", d.HandoverTimeout, "give a duration, or -1 to wait for nothing")
	check.That(d.InFlight >= 1, "InFlight", d.InFlight, "give a count of at least 1")
	for name, v := range map[string]time.Duration{
		"ConnectTimeout": d.ConnectTimeout, "ConnectionTimeout": d.ConnectionTimeout, "OperationTimeout": d.OperationTimeout,
		"PingInterval": d.PingInterval, "PublishTimeout": d.PublishTimeout, "CloseTimeout": d.CloseTimeout,
	} {
		check.That(v > 0, name, v, "give a duration")
	}
	check.That(d.LogInterval == -1 || d.LogInterval >= time.Second, "LogInterval", d.LogInterval, "give 1s or more, or -1 for every failure")
	for _, topic := range d.Topics {
		if err := d.names().ValidateTopic(topic); err != nil {
			check.Add(fmt.Errorf("nats: Config.Topics: %q: %w", topic, err))
		}
	}
	for _, s := range d.Subscriptions {
		if err := d.names().ValidateSubscription(s); err != nil {
			check.Add(fmt.Errorf("nats: Config.Subscriptions: %w", err))
		}
	}
	check.Add(d.validateCredentials())
	return check.Err()
}

// validateURL recognizes the usual mistakes: no scheme, and the address of the monitoring port.
func (c *Config) validateURL() error {
	if c.URL == "" {
		return errors.New("nats: Config.URL is empty: give the server's address, nats://host:4222 (ONCEBOX_NATS_URL)")
	}
	for address := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss" {
			return fmt.Errorf("nats: Config.URL %q does not look like nats://host:4222 or tls://host:4222 (ONCEBOX_NATS_URL)", adapters.Redacted(c.URL))
		}
	}
	return nil
}

func (c *Config) validateCredentials() error {
	var errs []error
	ways := 0
	for _, given := range []string{c.User, c.Token, c.NKeyFile, c.CredsFile} {
		if given != "" {
			ways++
		}
	}
	if ways > 1 {
		errs = append(errs, errors.New("nats: of Config.User, Token, NKeyFile and CredsFile, only one may be set"))
	}
	if c.Password != "" && c.User == "" {
		errs = append(errs, errors.New("nats: Config.Password is set, and User is not"))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		errs = append(errs, errors.New("nats: Config.TLSCert and TLSKey belong together"))
	}
	return errors.Join(errs...)
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Prefix = cmp.Or(out.Prefix, "oncebox")
	out.Declare = cmp.Or(out.Declare, Make)
	out.Partitions = cmp.Or(out.Partitions, 8)
	out.MaxAge = cmp.Or(out.MaxAge, 7*24*time.Hour)
	out.DuplicateWindow = cmp.Or(out.DuplicateWindow, 5*time.Minute)
	out.TakeoverTimeout = cmp.Or(out.TakeoverTimeout, 15*time.Second)
	out.HandoverTimeout = cmp.Or(out.HandoverTimeout, 10*time.Second)
	out.InFlight = cmp.Or(out.InFlight, 1000)
	out.ConnectTimeout = cmp.Or(out.ConnectTimeout, 30*time.Second)
	out.ConnectionTimeout = cmp.Or(out.ConnectionTimeout, 5*time.Second)
	out.OperationTimeout = cmp.Or(out.OperationTimeout, 10*time.Second)
	out.PingInterval = cmp.Or(out.PingInterval, 10*time.Second)
	out.PublishTimeout = cmp.Or(out.PublishTimeout, 30*time.Second)
	out.CloseTimeout = cmp.Or(out.CloseTimeout, 10*time.Second)
	out.LogInterval = cmp.Or(out.LogInterval, quietlog.Interval)
	if out.Name == "" {
		out.Name, _ = os.Hostname() // an error leaves the name empty
	}
	return out
}

func (c *Config) names() streams.Names { return streams.Names{Prefix: c.Prefix} }
