package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging/pulsar"
)

func brokerChecks() []check {
	return []check{{"connection", (*examination).connection}, {"broker", needsTables((*examination).broker)}}
}

// dialTimeout is how long one host of the broker may take to accept a connection.
const dialTimeout = 3 * time.Second

// connection dials the hosts of the broker's own address, which the admin API does not use. One that answers is enough.
func (e *examination) connection(ctx context.Context) ([]Finding, error) {
	scheme, hosts, _ := strings.Cut(e.Pulsar.URL, "://")
	hosts, _, _ = strings.Cut(hosts, "/")
	hosts = hosts[strings.LastIndex(hosts, "@")+1:]
	port := "6650"
	if scheme == "pulsar+ssl" {
		port = "6651"
	}
	var failures []error
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
		if err == nil {
			return nil, conn.Close()
		}
		failures = append(failures, err)
	}
	return []Finding{finding("connection", Problem, "start the broker, or correct ONCEBOX_PULSAR_URL",
		"no host of the broker takes a connection: %v", errors.Join(failures...))}, nil
}

func (e *examination) broker(ctx context.Context) ([]Finding, error) {
	inspection, err := pulsar.Inspect(ctx, e.Pulsar, e.Topics...)
	if err != nil {
		return nil, err
	}
	owners, err := e.inbox.Owners(ctx)
	var found []Finding
	for n := range inspection.Topics {
		found = append(found, e.topic(inspection.Namespace, &inspection.Topics[n], owners)...)
	}
	return found, err
}

func (e *examination) topic(namespace string, t *pulsar.TopicInspection, owners map[string]string) (found []Finding) {
	full := "persistent://" + namespace + "/" + t.Name
	add := func(severity Severity, mend, format string, args ...any) {
		found = append(found, finding("broker", severity, mend, "topic "+t.Name+": "+format, args...))
	}
	if t.Partitions == 0 && e.Pulsar.Partitions != 1 {
		add(Warning, "make a topic of another name with partitions, and move to it; or set ONCEBOX_PULSAR_PARTITIONS=1 if that is meant",
			"it has no partitions, so one consumer works at a time")
	}
	if len(t.Subscriptions) == 0 && t.Retained == 0 {
		add(Problem, fmt.Sprintf("pulsar-admin topics set-retention %s --time 7d --size -1, or start the consumer first", full),
			"it has no subscription and no retention: what is published is deleted at once")
	}
	if t.Expires > 0 {
		add(Problem, "pulsar-admin topics remove-message-ttl "+full+", or pulsar-admin namespaces remove-message-ttl "+namespace,
			"messages that were not handled are dropped after %s (message TTL)", t.Expires)
	}
	if t.Evicts {
		add(Problem, "pulsar-admin namespaces set-backlog-quota "+namespace+" --policy producer_request_hold, with the limit that it has",
			"the oldest messages are dropped when the backlog is full (consumer_backlog_eviction)")
	}
	if e.outlives(t.Retained) {
		add(Warning, "raise ONCEBOX_INBOX_RETENTION above "+length(t.Retained),
			"it keeps messages for %s and the inbox remembers them for %s: what a subscription that is set back gets again is handled twice",
			length(t.Retained), length(e.remembered()))
	}
	for _, s := range t.Subscriptions {
		if s.Type == "Shared" {
			add(Warning, "use Failover (the default) or KeyShared for consumers that need the order",
				"the subscription %s is Shared, which keeps no order of a key", s.Name)
		}
		if owner := owners[s.Name]; owner != "" && s.Source != "" && owner != s.Source {
			add(Problem, "give one of the two services another name for its consumer",
				"the subscription %s belongs to the service %s, and in this database the consumer of that name belongs to %s: each gets a part of the messages",
				s.Name, s.Source, owner)
		}
	}
	return found
}
