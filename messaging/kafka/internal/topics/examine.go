package topics

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/wire"
)

const (
	uncleanElection = "unclean.leader.election.enable"
	offsetRetention = "offsets.retention.minutes"
	retentionBytes  = "retention.bytes"
	timestampType   = "message.timestamp.type"
	timestampBefore = "message.timestamp.before.max.ms"
	timestampAfter  = "message.timestamp.after.max.ms"
	// shortTolerance is how much the clocks of programs may differ from those of the brokers, and how long a batch may be under way, before messages are
	// refused.
	shortTolerance = 5 * time.Minute
	// shortRetention is the retention below which a consumer that stands still over a long weekend loses messages.
	shortRetention = 4 * 24 * time.Hour
)

// Examine looks at the settings of topics that lose, hold back or refuse messages, and at their subscriptions. limit is the size of the largest
// message that the program sends.
func (k *Keeper) Examine(ctx context.Context, e *diagnosis.Examination, limit int) ([]diagnosis.Finding, error) {
	all, err := k.admin.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	found, err := k.examineBroker(ctx)
	errs := []error{err}
	var read []diagnosis.Topic
	groups, err := k.admin.ListGroups(ctx)
	if err != nil {
		errs = append(errs, fmt.Errorf("kafka: list the consumer groups: %w", err))
	}
	for _, name := range k.examined(e, all.Topics) {
		detail := all.Topics[k.cfg.FullName(name)]
		if detail.Err != nil || len(detail.Partitions) == 0 {
			found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem, "make it with: "+k.creation(k.cfg.FullName(name)),
				"topic %s: it does not exist", name))
			continue
		}
		settings, err := k.Settings(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found = append(found, k.examineCopies(name, settings, detail.Partitions.NumReplicas(), len(all.Brokers))...)
		found = append(found, k.examineSettings(name, settings, limit)...)
		more, topic, err := k.examineSubscriptions(ctx, name, groups)
		found = append(found, more...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		read = append(read, *topic)
	}
	same, err := e.Compare(ctx, read)
	return append(found, same...), errors.Join(append(errs, err)...)
}

// examined returns the names of the topics to look at, all with the prefix of the configuration unless the examination names some.
func (k *Keeper) examined(e *diagnosis.Examination, all kadm.TopicDetails) (names []string) {
	if e.Topics != nil {
		return e.Topics
	}
	for _, full := range all.Names() {
		if name, ours := strings.CutPrefix(full, string(k.cfg.Prefix)); ours && !strings.HasPrefix(full, "__") {
			names = append(names, wire.Unescape(name))
		}
	}
	return names
}

func (k *Keeper) examineBroker(ctx context.Context) (found []diagnosis.Finding, err error) {
	all, err := k.admin.DescribeBrokerConfigs(ctx)
	if err != nil {
		return nil, err
	}
	for _, broker := range all {
		for _, c := range broker.Configs {
			minutes, err := strconv.Atoi(c.MaybeValue())
			if c.Key != offsetRetention || err != nil || time.Duration(minutes)*time.Minute >= shortRetention {
				continue
			}
			return append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Warning,
				"set "+offsetRetention+"=10080 or more in the configuration of the brokers",
				"%s is %d: a subscription that has no consumer for longer forgets its place and receives everything again", offsetRetention, minutes)), nil
		}
	}
	return found, nil
}

// examineCopies looks at how many copies a confirmed message has.
func (k *Keeper) examineCopies(name string, settings map[string]string, copies, brokers int) (found []diagnosis.Finding) {
	full, about := k.cfg.FullName(name), "topic "+name+": "
	need, _ := strconv.Atoi(settings[minInSync]) // without a number nothing is known
	fault := func(severity diagnosis.Severity, mend, format string, args ...any) {
		found = append(found, diagnosis.Find(diagnosis.Broker, severity, mend, about+format, args...))
	}
	switch {
	case need > copies:
		fault(diagnosis.Problem, k.alteration(full, minInSync, strconv.Itoa(max(copies-1, 1))),
			"%s is %d and each partition has %d copies, so the broker refuses every message", minInSync, need, copies)
	case copies == 1 && brokers > 1:
		fault(diagnosis.Warning, "give it three copies with kafka-reassign-partitions.sh, and ONCEBOX_KAFKA_REPLICATION=3 for new topics",
			"each partition has one copy, so events are lost with the disk of one broker, and cannot be published while it is away")
	case copies > 2 && need == 1:
		fault(diagnosis.Warning, k.alteration(full, minInSync, "2"),
			"%s is 1, so a confirmed event may have one copy only, and be lost with one broker", minInSync)
	case copies > 1 && need == copies:
		fault(diagnosis.Warning, k.alteration(full, minInSync, strconv.Itoa(copies-1)),
			"%s is %d and each partition has %d copies, so nothing can be published while one broker is away", minInSync, need, copies)
	}
	return found
}

// examineSettings looks at what the broker deletes or refuses.
func (k *Keeper) examineSettings(name string, settings map[string]string, limit int) (found []diagnosis.Finding) {
	full, about := k.cfg.FullName(name), "topic "+name+": "
	fault := func(severity diagnosis.Severity, setting, value, format string, args ...any) {
		found = append(found, diagnosis.Find(diagnosis.Broker, severity, k.alteration(full, setting, value), about+format, args...))
	}
	if settings[uncleanElection] == "true" {
		fault(diagnosis.Problem, uncleanElection, "false",
			"%s is true, so a broker that lacks confirmed events may become leader, and they are lost", uncleanElection)
	}
	policy := settings[cleanupPolicy]
	if strings.Contains(policy, "compact") {
		fault(diagnosis.Problem, cleanupPolicy, "delete",
			"%s is %s, so earlier events of a key are deleted, whether they were consumed or not", cleanupPolicy, policy)
	}
	millis, err := strconv.ParseInt(settings[retentionMillis], 10, 64)
	if kept := time.Duration(millis) * time.Millisecond; err == nil && millis >= 0 && kept < shortRetention && strings.Contains(policy, "delete") {
		fault(diagnosis.Warning, retentionMillis, "604800000",
			"%s is %s, so a subscription that stands still for longer loses events", retentionMillis, kept)
	}
	if most, err := strconv.ParseInt(settings[retentionBytes], 10, 64); err == nil && most >= 0 && strings.Contains(policy, "delete") {
		fault(diagnosis.Warning, retentionBytes, "-1",
			"%s is %d, so a partition with more bytes loses events, whether they were consumed or not", retentionBytes, most)
	}
	for _, setting := range []string{timestampBefore, timestampAfter} {
		millis, err := strconv.ParseInt(settings[setting], 10, 64)
		if settings[timestampType] == "CreateTime" && err == nil && millis < shortTolerance.Milliseconds() {
			fault(diagnosis.Warning, setting, "3600000",
				"%s is %d ms, so events of a machine whose clock differs by more are refused", setting, millis)
		}
	}
	if most, err := strconv.Atoi(settings[MaxMessageBytes]); err == nil && most < limit {
		fault(diagnosis.Warning, MaxMessageBytes, strconv.Itoa(limit),
			"%s is %d, and ONCEBOX_KAFKA_MAX_MESSAGE_BYTES is %d: events between become dead letters", MaxMessageBytes, most, limit)
	}
	return found
}

// examineSubscriptions looks at the consumer groups of a topic.
func (k *Keeper) examineSubscriptions(ctx context.Context, name string, groups kadm.ListedGroups) ([]diagnosis.Finding, *diagnosis.Topic, error) {
	retained, err := k.Retention(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	topic := &diagnosis.Topic{Name: name, Retained: retained}
	if topic.Unused, err = k.Unused(ctx, name); err != nil {
		return nil, nil, err
	}
	var found []diagnosis.Finding
	for _, group := range groups.Sorted() {
		subscription, ours := strings.CutPrefix(group.Group, k.cfg.FullName(name)+ofGroup)
		if !ours {
			continue
		}
		s := messaging.Subscription{Topic: name, Name: subscription}
		lag, err := k.Lag(ctx, s)
		if err != nil {
			return found, nil, err
		}
		_, is, err := k.admit(ctx, s)
		if err != nil {
			return found, nil, err
		}
		state := k.stateOf(s, &lag)
		topic.Subscriptions = append(topic.Subscriptions, diagnosis.Subscription{
			Name: subscription, Owner: diagnosis.Publisher{Source: is.Source, Installation: is.Installation},
			Waiting: state.Messages, Consumers: state.Consumers, Unattended: state.Unattended,
			Remove: "kafka-consumer-groups.sh --bootstrap-server " + k.cfg.Host + " --delete --group '" + group.Group + "'",
		})
		found = append(found, k.examineGroup(s, &group, &lag)...)
	}
	return found, topic, nil
}

// examineGroup finds messages that were deleted before they were consumed, and members of a group that are other programs.
func (k *Keeper) examineGroup(s messaging.Subscription, group *kadm.ListedGroup, lag *kadm.DescribedGroupLag) (found []diagnosis.Finding) {
	full := k.cfg.FullName(s.Topic)
	deleted := int64(0)
	for _, part := range lag.Lag[full] {
		if part.Commit.At >= 0 && part.Start.Err == nil {
			deleted += max(part.Start.Offset-part.Commit.At, 0)
		}
	}
	if deleted > 0 {
		found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem, k.alteration(full, retentionMillis, "-1")+
			", until the subscription has caught up",
			"topic %s: %d events were deleted before the subscription %s received them", s.Topic, deleted, s.Name))
	}
	who := stranger(lag.Protocol, lag.Members)
	if group.GroupType == "consumer" && group.State != "Empty" { // of KIP-848, which oncebox does not use
		who = "a program with group.protocol=consumer"
	}
	if who != "" {
		found = append(found, diagnosis.Find(diagnosis.Broker, diagnosis.Problem, "stop it, or give it a consumer group of its own",
			"topic %s: another program consumes in the group of the subscription %s, and gets messages of it: %s", s.Topic, s.Name, who))
	}
	return found
}
