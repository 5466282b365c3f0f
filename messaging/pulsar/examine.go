package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

const (
	// dialTimeout is how long one host of the broker may take to accept a connection.
	dialTimeout = 3 * time.Second
	// probeTimeout is how long the whole probe may take: to connect, to look a topic up and to read from it.
	probeTimeout = 15 * time.Second
	// maxExamined is the largest number of topics that are examined.
	maxExamined = 1000
)

var _ diagnosis.Examiner = (*Broker)(nil)

// Examine implements [diagnosis.Examiner]. It looks at the connection first, and then asks the admin API, which has another address, about up to
// 1,000 topics of the namespace.
func (b *Broker) Examine(ctx context.Context, e diagnosis.Examination) ([]diagnosis.Finding, error) {
	leave, err := b.calls.Enter("pulsar: examine")
	if err != nil {
		return nil, err
	}
	defer leave()
	all, unlisted := b.keeper.Admin.ListTopics(ctx)
	found := b.unreachable(ctx, existing(all, e.Topics))
	if unlisted != nil {
		return found, fmt.Errorf("pulsar: examine: ask the admin API (Config.AdminURL, ONCEBOX_PULSAR_ADMIN_URL): %w", unlisted)
	}
	if len(e.Topics) > 0 {
		all = e.Topics
	}
	var read []diagnosis.Topic
	for _, name := range all[:min(len(all), maxExamined)] {
		topic, list, err := examineTopic(ctx, b.keeper.Admin, name, b.cfg.Partitions)
		found = append(found, list...)
		if err != nil {
			return found, fmt.Errorf("pulsar: examine topic %s: %w", name, err)
		}
		read = append(read, *topic)
	}
	same, err := e.Compare(ctx, read)
	return append(found, same...), err
}

// existing returns a topic that exists, one of wanted if these are given; "" if there is none. A topic that does not exist must not be looked up,
// because the broker may make it.
func existing(all, wanted []string) string {
	for _, name := range all {
		if len(wanted) == 0 || slices.Contains(wanted, name) {
			return name
		}
	}
	return ""
}

// unreachable finds out whether the service can connect. One host that answers is enough, as for the service. A cluster may send clients to another
// broker for a topic, so it also connects there, unless topic is "".
func (b *Broker) unreachable(ctx context.Context, topic string) []diagnosis.Finding {
	var failures []error
	for _, host := range b.cfg.hosts() {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		_ = conn.Close() // it was only made to see that the host accepts connections
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err := b.probe(ctx, topic); err != nil {
			return []diagnosis.Finding{diagnosis.Find(diagnosis.Connection, diagnosis.Problem,
				"mend what the error says: the broker, the network between, the credentials, or ONCEBOX_PULSAR_URL",
				"the service could not connect to the broker at ONCEBOX_PULSAR_URL (%s): %v", strings.Join(b.cfg.hosts(), ", "), err)}
		}
		return nil
	}
	return []diagnosis.Finding{diagnosis.Find(diagnosis.Connection, diagnosis.Problem, "start the broker, or correct ONCEBOX_PULSAR_URL",
		"no host in ONCEBOX_PULSAR_URL accepts a connection: %v", errors.Join(failures...))}
}

// hosts returns the hosts of URL, each with a port. 6650 and 6651 are the ports of Pulsar without and with TLS. net/url cannot parse a list of hosts,
// so the address is taken apart by hand.
func (c *Config) hosts() (list []string) {
	scheme, hosts, _ := strings.Cut(c.URL, "://")
	hosts, _, _ = strings.Cut(hosts, "/")
	hosts = hosts[strings.LastIndex(hosts, "@")+1:]
	port := "6650"
	if scheme == "pulsar+ssl" {
		port = "6651"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			// An IPv6 address is in brackets, which JoinHostPort adds itself.
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		list = append(list, host)
	}
	return list
}

// probe looks a topic up and connects to the broker that serves it, as a consumer would. So it also finds a network that lets only the first
// connection through. It makes nothing: with topic "" it only waits for the connection. The error names the step that failed. It is nil if the role
// may not read the topic, because the broker has answered.
func (b *Broker) probe(ctx context.Context, topic string) error {
	if err := b.start.Wait(ctx, "examine"); err != nil || topic == "" {
		return err
	}
	full := b.keeper.FullName(topic)
	partitions, _, err := answer.Once(ctx, &b.background, func() ([]string, error) { return b.client.TopicPartitions(full) }, func([]string) {})
	if err != nil {
		return fmt.Errorf("look topic %s up: %w", full, err)
	}
	reader, _, err := answer.Once(ctx, &b.background, func() (pulsarclient.Reader, error) {
		return b.client.CreateReader(pulsarclient.ReaderOptions{
			Topic: partitions[0], StartMessageID: pulsarclient.LatestMessageID(), SubscriptionName: "oncebox-probe", ReceiverQueueSize: 1,
		})
	}, pulsarclient.Reader.Close)
	switch {
	case err == nil:
		reader.Close()
		return nil
	case answer.IsTopicTrouble(err):
		return nil // the broker that serves it has answered
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("no answer in time")
	}
	return fmt.Errorf("%s answers, but the broker that serves topic %s cannot be reached from here: check the advertised "+
		"addresses of the brokers and the network between: %w", adapters.Redacted(b.cfg.URL), full, err)
}

// examineTopic finds settings of one topic that lose or delay messages.
func examineTopic(ctx context.Context, a *topics.Admin, name string, wanted int) (t *diagnosis.Topic, found []diagnosis.Finding, err error) {
	t = &diagnosis.Topic{Name: name}
	full := "persistent://" + a.Namespace() + "/" + name
	partitions, err := readTopic(ctx, a, t)
	if err != nil {
		return nil, nil, err
	}
	add := func(severity diagnosis.Severity, mend, format string, args ...any) {
		found = append(found, diagnosis.Find(diagnosis.Broker, severity, mend, "topic "+name+": "+format, args...))
	}
	// A topic gets partitions only when it is made. Adding them later moves keys to other partitions, so
	// the order of a key is lost.
	if partitions == 0 && wanted != 1 {
		add(diagnosis.Warning, "make a topic of another name with partitions, and move to it; or set ONCEBOX_PULSAR_PARTITIONS=1 if that is meant",
			"it has no partitions, so only one process of a consumer works at a time")
	}
	// Pulsar deletes messages at once if no subscription needs them and no retention keeps them.
	if len(t.Subscriptions) == 0 && t.Retained == 0 {
		add(diagnosis.Problem, fmt.Sprintf("pulsar-admin topics set-retention %s --time 7d --size -1, or start the consumer first", full),
			"it has no subscription and no retention, so the broker deletes each message at once")
	}
	expires, err := a.Expires(ctx, name)
	if err != nil {
		return nil, found, err
	}
	if expires > 0 {
		add(diagnosis.Problem, "pulsar-admin topics remove-message-ttl "+full+", or pulsar-admin namespaces remove-message-ttl "+a.Namespace(),
			"messages that were not handled are dropped after %s (message TTL)", expires)
	}
	evicts, err := a.Evicts(ctx, name)
	if err != nil {
		return nil, found, err
	}
	if evicts {
		add(diagnosis.Problem, "pulsar-admin namespaces set-backlog-quota "+a.Namespace()+" --policy producer_request_hold, with the limit that it has",
			"the oldest messages are dropped when the backlog is full (consumer_backlog_eviction)")
	}
	return t, found, nil
}

// readTopic reads one topic, and returns its number of partitions, 0 if it has none. Subscriptions and publishers are those of the first partition,
// because they belong to all partitions.
func readTopic(ctx context.Context, a *topics.Admin, t *diagnosis.Topic) (partitions int, err error) {
	if partitions, err = a.Partitions(ctx, t.Name); err != nil {
		return 0, err
	}
	if t.Retained, err = a.Retained(ctx, t.Name); err != nil {
		return 0, err
	}
	stats, err := a.Stats(ctx, topics.FirstPartition(t.Name, partitions))
	if err != nil {
		return 0, err
	}
	for name, s := range stats.Subscriptions {
		waits, err := a.State(ctx, t.Name, name)
		if err != nil {
			return 0, err
		}
		t.Subscriptions = append(t.Subscriptions, diagnosis.Subscription{
			Name: name, Owner: publisher(s.Properties), Unordered: s.Type == "Shared",
			Waiting: waits.Messages, Consumers: waits.Consumers, Unattended: waits.Unattended,
			Remove: fmt.Sprintf("pulsar-admin topics unsubscribe -s %s persistent://%s/%s", name, a.Namespace(), t.Name),
		})
	}
	for _, p := range stats.Publishers {
		t.Publishers = append(t.Publishers, publisher(p.Metadata))
	}
	if len(t.Publishers) == 0 {
		if t.Unused, err = a.IsEmpty(ctx, t.Name, partitions); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(t.Subscriptions, func(a, b diagnosis.Subscription) int { return strings.Compare(a.Name, b.Name) })
	return partitions, nil
}

// publisher reads the properties that a broker has made with [Broker.Introduce], or for a subscription. Those of other programs have none.
func publisher(properties map[string]string) diagnosis.Publisher {
	return diagnosis.Publisher{Source: properties[topics.SourceProperty], Installation: properties[topics.InstallationProperty]}
}
