package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging/pulsar"
)

// The check "connection" comes first, because it needs only the network: if it fails, the findings about
// topics have the same cause.
func brokerChecks() []check {
	return []check{{"connection", (*examination).connection}, {"broker", needsTables((*examination).broker)}}
}

// dialTimeout is how long one host of the broker may take to accept a connection.
const dialTimeout = 3 * time.Second

// connection connects to the hosts of ONCEBOX_PULSAR_URL, because the admin API uses another address. One host that
// answers is enough, as for the service.
func (e *examination) connection(ctx context.Context) ([]Finding, error) {
	var failures []error
	for _, host := range e.hosts() {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
		if err == nil {
			_ = conn.Close() // it was only made to see that the host accepts connections
			return e.probe(ctx)
		}
		failures = append(failures, err)
	}
	return []Finding{finding("connection", Problem, "start the broker, or correct ONCEBOX_PULSAR_URL",
		"no host in ONCEBOX_PULSAR_URL accepts a connection: %v", errors.Join(failures...))}, nil
}

// hosts returns the hosts of ONCEBOX_PULSAR_URL, each with a port. 6650 and 6651 are the ports of Pulsar without and
// with TLS. net/url cannot parse a list of hosts, so the address is taken apart by hand.
func (e *examination) hosts() (list []string) {
	scheme, hosts, _ := strings.Cut(e.Pulsar.URL, "://")
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

// probeTimeout is how long the whole probe may take: to connect, to look a topic up and to read from it.
const probeTimeout = 15 * time.Second

// probe connects to the broker as the service does. A cluster may send clients to another broker for a topic, so it
// also connects there if there is a topic.
func (e *examination) probe(ctx context.Context) ([]Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := pulsar.Probe(ctx, e.Pulsar, e.someTopic(ctx)); err != nil {
		return []Finding{finding("connection", Problem, "mend what the error says: the broker, the network between, the credentials, or ONCEBOX_PULSAR_URL",
			"the service could not connect to the broker at ONCEBOX_PULSAR_URL (%s): %v", strings.Join(e.hosts(), ", "), err)}, nil
	}
	return nil, nil
}

// someTopic returns the name of an existing topic, "" if none is known. It ignores errors of the admin API, because the
// check "broker" reports them.
func (e *examination) someTopic(ctx context.Context) string {
	reader, err := pulsar.NewReader(e.Pulsar)
	if err != nil {
		return ""
	}
	topics, _ := reader.Topics(ctx)
	for _, topic := range topics {
		if len(e.Topics) == 0 || slices.Contains(e.Topics, topic) {
			return topic
		}
	}
	return ""
}

// broker compares the topics at the broker with the processes and consumers of this database: which processes are connected, which
// service a subscription belongs to, and settings of the broker that lose messages.
func (e *examination) broker(ctx context.Context) ([]Finding, error) {
	inspection, err := pulsar.Inspect(ctx, e.Pulsar, e.Topics...)
	if err != nil {
		return nil, err
	}
	owners, err := e.inbox.Owners(ctx)
	if err != nil {
		return nil, err
	}
	// Findings about this database's processes come first: they often explain what the topics below show.
	found, cut, err := e.cutOff(ctx)
	if err != nil {
		return found, err
	}
	late, err := e.relays(ctx)
	if found = append(found, late...); err != nil {
		return found, err
	}
	for n := range inspection.Topics {
		t := &inspection.Topics[n]
		found = append(found, e.topic(inspection.Namespace, t, owners, cut)...)
		others, err := e.installations(ctx, t)
		if err != nil {
			return found, err
		}
		found = append(found, others...)
	}
	return found, nil
}

// installations finds other databases that use this service's name and have a subscription of the topic or publish to
// it. A message that goes to the other database is missing here.
func (e *examination) installations(ctx context.Context, t *pulsar.TopicInspection) (found []Finding, err error) {
	seen := map[string]string{} // what the other database does at the topic, by its installation id
	for _, p := range t.Publishers {
		if p.Source == e.Config.UoW.Source {
			seen[p.Installation] = "publishes to it"
		}
	}
	for _, s := range t.Subscriptions {
		if s.Source != "" && s.Source == e.Config.UoW.Source {
			seen[s.Installation] = "has the subscription " + s.Name
		}
	}
	// Publishers and subscriptions without the property were made by a program that does not use oncebox. They say
	// nothing about another database.
	delete(seen, "")
	for _, other := range slices.Sorted(maps.Keys(seen)) {
		id, takeOver, err := e.inbox.KnownInstallation(ctx, other)
		if err != nil {
			return found, err
		}
		if id == other {
			continue
		}
		found = append(found, finding("broker", Problem, "correct ONCEBOX_DATABASE_URL and ONCEBOX_SCHEMA of one of the two, "+
			"or give one another ONCEBOX_SOURCE; if this database has taken the place of the other one for good: "+takeOver,
			"topic %s: the service %s with another database (installation %s) %s: of two that run, each has a part of the events",
			t.Name, e.Config.UoW.Source, other, seen[other]))
	}
	return found, nil
}

// topic finds settings of one topic that lose or delay messages. Subscriptions in cut are left out where they have no
// consumer: cutOff has found why, and another process would not mend it.
func (e *examination) topic(namespace string, t *pulsar.TopicInspection, owners map[string]string, cut map[subscription]bool) (found []Finding) {
	full := "persistent://" + namespace + "/" + t.Name
	add := func(severity Severity, mend, format string, args ...any) {
		found = append(found, finding("broker", severity, mend, "topic "+t.Name+": "+format, args...))
	}
	// A topic gets partitions only when it is made. Adding them later moves keys to other partitions, so
	// the order of a key is lost.
	if t.Partitions == 0 && e.Pulsar.Partitions != 1 {
		add(Warning, "make a topic of another name with partitions, and move to it; or set ONCEBOX_PULSAR_PARTITIONS=1 if that is meant",
			"it has no partitions, so only one process of a consumer works at a time")
	}
	// Pulsar deletes messages at once if no subscription needs them and no retention keeps them.
	if len(t.Subscriptions) == 0 && t.Retained == 0 {
		add(Problem, fmt.Sprintf("pulsar-admin topics set-retention %s --time 7d --size -1, or start the consumer first", full),
			"it has no subscription and no retention, so the broker deletes each message at once")
	}
	if t.Expires > 0 {
		add(Problem, "pulsar-admin topics remove-message-ttl "+full+", or pulsar-admin namespaces remove-message-ttl "+namespace,
			"messages that were not handled are dropped after %s (message TTL)", t.Expires)
	}
	if t.Evicts {
		add(Problem, "pulsar-admin namespaces set-backlog-quota "+namespace+" --policy producer_request_hold, with the limit that it has",
			"the oldest messages are dropped when the backlog is full (consumer_backlog_eviction)")
	}
	// The inbox recognizes a message that comes again only as long as it remembers it.
	if e.outlives(t.Retained) {
		add(Warning, "raise ONCEBOX_INBOX_RETENTION above "+length(t.Retained),
			"it keeps messages for %s, but the inbox remembers them only for %s: if a subscription is reset to an older message, messages are handled twice",
			length(t.Retained), length(e.remembered()))
	}
	for _, s := range t.Subscriptions {
		if s.Unattended > 0 && !cut[subscription{t.Name, s.Name}] {
			add(Problem, "start a process of the service that runs the consumer; if the consumer no longer exists and its messages may be lost: "+
				fmt.Sprintf("pulsar-admin topics unsubscribe -s %s %s", s.Name, full),
				"the subscription %s%s has %s, and no consumer %s", s.Name, ofService(s.Source), waiting(s.Backlog), where(&s))
		}
		if s.Type == "Shared" {
			add(Warning, "use Failover (the default) or KeyShared for consumers that need the order",
				"the subscription %s is of type Shared, so messages with one ordering key may be handled out of order", s.Name)
		}
		// Pulsar divides the messages of a subscription among all its consumers, whichever service they belong to.
		if owner := owners[s.Name]; owner != "" && s.Source != "" && owner != s.Source {
			add(Problem, "give one of the two services another name for its consumer",
				"the subscription %s belongs to the service %s, and in this database the consumer of that name belongs to %s: each gets a part of the messages",
				s.Name, s.Source, owner)
		}
	}
	return found
}

// ofService returns "" for a subscription that was not made by oncebox, because its service is unknown.
func ofService(source string) string {
	if source == "" {
		return ""
	}
	return " of the service " + source
}

func waiting(n int64) string {
	if n == 1 {
		return "1 message that waits"
	}
	return fmt.Sprintf("%d messages that wait", n)
}

// where returns which part of the subscription has no consumer: some partitions, or all.
func where(s *pulsar.SubscriptionInspection) string {
	if s.Consumers > 0 {
		return fmt.Sprintf("in %d of its partitions", s.Unattended)
	}
	return "is connected"
}
