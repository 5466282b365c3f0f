package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// The settings of topics that matter here.
const (
	MaxMessageBytes = "max.message.bytes"
	retentionMillis = "retention.ms"
	minInSync       = "min.insync.replicas"
	cleanupPolicy   = "cleanup.policy"
)

// What a program does with a topic, and needs the right to do.
const (
	Write = kadm.OpWrite
	Read  = kadm.OpRead
)

// Config configures a [Keeper].
type Config struct {
	Prefix

	Host        string        // a broker, for commands
	User        string        // the user of this program, for commands; empty: not known
	Check       bool          // topics that do not exist are errors
	Partitions  int           // of a new topic
	Replication int           // of a new topic; 0: that of the broker
	Retention   time.Duration // of a new topic; 0: that of the broker, -1: for ever
}

// Keeper makes topics and subscriptions, and reads their state.
type Keeper struct {
	cfg    Config
	client *kgo.Client
	admin  *kadm.Client
	log    *slog.Logger
}

// NewKeeper returns a keeper that asks through client.
func NewKeeper(cfg Config, client *kgo.Client, log *slog.Logger) *Keeper {
	return &Keeper{cfg, client, kadm.NewClient(client), log}
}

// Topic is a topic as the broker has it.
type Topic struct {
	ID         [16]byte // another one if the topic is deleted and made again
	Partitions int
	copies     int
	ready      bool                // each partition has a leader
	rights     []kadm.ACLOperation // of this program's user; empty: not known
}

// Look returns a topic that exists, and on which this program has a right.
func (k *Keeper) Look(ctx context.Context, name string, right kadm.ACLOperation) (Topic, error) {
	t, err := k.look(ctx, name)
	if err != nil {
		return t, k.Sorted("look up topic "+k.cfg.FullName(name), of(name), err)
	}
	return t, k.permit(name, t, right)
}

func (k *Keeper) look(ctx context.Context, name string) (t Topic, err error) {
	full := k.cfg.FullName(name)
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &full
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return t, err
	}
	if len(resp.Topics) != 1 {
		return t, kerr.UnknownTopicOrPartition
	}
	found := resp.Topics[0]
	t = Topic{found.TopicID, len(found.Partitions), 0, len(found.Partitions) > 0, kadm.DecodeACLOperations(found.AuthorizedOperations)}
	for _, p := range found.Partitions {
		t.copies = max(t.copies, len(p.Replicas))
		t.ready = t.ready && p.ErrorCode == 0 && p.Leader >= 0
	}
	return t, kerr.ErrorForCode(found.ErrorCode)
}

// permit returns an error if this program lacks a right on a topic. Without it the broker would refuse the first message.
func (k *Keeper) permit(name string, t Topic, right kadm.ACLOperation) error {
	if len(t.rights) == 0 || slices.Contains(t.rights, right) {
		return nil
	}
	full := k.cfg.FullName(name)
	return &messaging.TopicError{Topic: name, Err: fmt.Errorf("kafka: the user of this program has no right %s on topic %s: %w. Grant it with: %s",
		right, full, kerr.TopicAuthorizationFailed, k.grant(right.String(), "topic", full))}
}

// Ensure returns a topic on which this program has a right. It makes a missing topic, or returns an error, as Config.Declare says.
func (k *Keeper) Ensure(ctx context.Context, name string, right kadm.ACLOperation) (Topic, error) {
	t, err := k.Look(ctx, name, right)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return t, err
	}
	if err := k.create(ctx, name); err != nil {
		return t, err
	}
	if t, err = k.awaitLeaders(ctx, name); err != nil {
		return t, err
	}
	return t, k.permit(name, t, right)
}

// create makes a topic. With [Config].Check it returns an error with the command that makes it.
func (k *Keeper) create(ctx context.Context, name string) error {
	return k.ask(ctx, name, k.admin.CreateTopics)
}

// mayCreate returns the error that create would return, and makes nothing.
func (k *Keeper) mayCreate(ctx context.Context, name string) error {
	return k.ask(ctx, name, k.admin.ValidateCreateTopics)
}

// creating is a method of [kadm.Client] that makes topics, or only has the broker check the request.
type creating func(ctx context.Context, partitions int32, copies int16, settings map[string]*string, topics ...string) (kadm.CreateTopicResponses, error)

func (k *Keeper) ask(ctx context.Context, name string, request creating) error {
	full := k.cfg.FullName(name)
	if k.cfg.Check {
		return &messaging.TopicError{Topic: name, Err: fmt.Errorf("kafka: the topic %s does not exist, and Config.Declare (ONCEBOX_KAFKA_DECLARE) "+
			"is check: make it with: %s", full, k.creation(full))}
	}
	settings := map[string]*string{}
	if millis := k.cfg.retention(); millis != "" {
		settings[retentionMillis] = &millis
	}
	answer, err := request(ctx, int32(k.cfg.Partitions), k.cfg.replicas(), settings, full) //nolint:gosec // Validate limits them
	if err == nil {
		err = answer.Error()
	}
	if errors.Is(err, kerr.InvalidTopicException) {
		err = fmt.Errorf("a topic whose name differs only in . and _ exists already, and Kafka does not allow both: %w", err)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return k.Sorted("make topic "+full+" with Config.Partitions "+strconv.Itoa(k.cfg.Partitions)+" and Config.Replication "+
			strconv.Itoa(k.cfg.Replication)+" (ONCEBOX_KAFKA_PARTITIONS, ONCEBOX_KAFKA_REPLICATION)", of(name), err)
	}
	return nil
}

// awaitLeaders waits until all partitions of a new topic can be used.
func (k *Keeper) awaitLeaders(ctx context.Context, name string) (Topic, error) {
	for {
		t, err := k.look(ctx, name)
		if err == nil && t.ready {
			return t, nil
		}
		if waiting := backoff.Wait(ctx, 50*time.Millisecond); waiting != nil {
			return t, fmt.Errorf("%w: kafka: the new topic %s has no leaders: %w", messaging.ErrBrokerDown, k.cfg.FullName(name),
				errors.Join(waiting, err))
		}
	}
}

// replicas returns the replication factor for a new topic. -1 is that of the broker (KIP-464).
func (c *Config) replicas() int16 {
	if c.Replication == 0 {
		return -1
	}
	return int16(c.Replication) //nolint:gosec // Validate limits it
}

// retention returns the value of retention.ms for a new topic, empty for that of the broker.
func (c *Config) retention() string {
	switch {
	case c.Retention == 0:
		return ""
	case c.Retention < 0:
		return "-1"
	default:
		return strconv.FormatInt(c.Retention.Milliseconds(), 10)
	}
}

// creation returns the command that makes a topic.
func (k *Keeper) creation(full string) string {
	command := "kafka-topics.sh --bootstrap-server " + k.cfg.Host + " --create --topic " + full + " --partitions " + strconv.Itoa(k.cfg.Partitions)
	if k.cfg.Replication > 0 {
		command += " --replication-factor " + strconv.Itoa(k.cfg.Replication)
	}
	if millis := k.cfg.retention(); millis != "" {
		command += " --config " + retentionMillis + "=" + millis
	}
	return command
}

// alteration returns the command that changes a setting of a topic.
func (k *Keeper) alteration(full, setting, value string) string {
	return "kafka-configs.sh --bootstrap-server " + k.cfg.Host + " --alter --entity-type topics --entity-name " + full +
		" --add-config " + setting + "=" + value
}

// grant returns the command that gives this program's user a right on a topic or a group.
func (k *Keeper) grant(right, kind, name string) string {
	return "kafka-acls.sh --bootstrap-server " + k.cfg.Host + " --add --allow-principal 'User:" + cmp.Or(k.cfg.User, "NAME") + "' --operation " + right +
		" --" + kind + " '" + name + "'"
}

// Settings returns the settings of a topic, its own and those of the broker.
func (k *Keeper) Settings(ctx context.Context, name string) (map[string]string, error) {
	full := k.cfg.FullName(name)
	all, err := k.admin.DescribeTopicConfigs(ctx, full)
	if err != nil {
		return nil, k.Sorted("read the settings of topic "+full, of(name), err)
	}
	described, err := all.On(full, nil)
	if err == nil {
		err = described.Err
	}
	if err != nil {
		return nil, k.Sorted("read the settings of topic "+full, of(name), err)
	}
	settings := map[string]string{}
	for _, c := range described.Configs {
		settings[c.Key] = c.MaybeValue()
	}
	return settings, nil
}

// Inspect reads the settings of a topic that this program publishes to. It returns an error if they lose messages, or refuse all of them. limit is the
// size of the largest message; 0 if it is not known, because this program may not read the settings.
func (k *Keeper) Inspect(ctx context.Context, name string, t Topic) (limit int, err error) {
	settings, err := k.Settings(ctx, name)
	if _, refused := errors.AsType[*messaging.TopicError](err); refused {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	full := k.cfg.FullName(name)
	if policy := settings[cleanupPolicy]; strings.Contains(policy, "compact") {
		return 0, &messaging.TopicError{Topic: name, Err: fmt.Errorf("kafka: the topic %s has %s=%s, and delete is needed: compaction removes the earlier "+
			"events of a key, whether they were consumed or not. Mend it with: %s", full, cleanupPolicy, policy, k.alteration(full, cleanupPolicy, "delete"))}
	}
	if need, err := strconv.Atoi(settings[minInSync]); err == nil && t.copies > 0 && need > t.copies {
		return 0, &messaging.TopicError{Topic: name, Err: fmt.Errorf("kafka: the topic %s has %s=%d and %d copies of each partition, so the broker refuses "+
			"every message. Mend it with: %s", full, minInSync, need, t.copies, k.alteration(full, minInSync, strconv.Itoa(t.copies)))}
	}
	limit, _ = strconv.Atoi(settings[MaxMessageBytes]) // without a number nothing is known
	return limit, nil
}

// Retention returns how long a topic keeps messages; -1: for ever. A topic that is only compacted keeps the last message of each key for ever.
func (k *Keeper) Retention(ctx context.Context, name string) (time.Duration, error) {
	settings, err := k.Settings(ctx, name)
	if err != nil {
		return 0, err
	}
	millis, err := strconv.ParseInt(settings[retentionMillis], 10, 64)
	if err != nil || millis < 0 || !strings.Contains(settings[cleanupPolicy], "delete") {
		return -1, nil //nolint:nilerr // no number is no limit
	}
	return time.Duration(min(millis, int64(math.MaxInt64/time.Millisecond))) * time.Millisecond, nil
}
