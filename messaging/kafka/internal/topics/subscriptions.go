package topics

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// Declare makes topics and subscriptions, whose names are known to be valid. It looks at all that exist before it makes one, and has the broker check what
// it would make, so that a start that is refused leaves nothing behind.
func (k *Keeper) Declare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	if err := k.mayDeclare(ctx, names, subscriptions); err != nil {
		return err
	}
	for _, name := range names {
		t, err := k.Ensure(ctx, name, Write)
		if err != nil {
			return err
		}
		if _, err := k.Inspect(ctx, name, t); err != nil { // a new topic has the settings of the broker
			return err
		}
	}
	for _, s := range subscriptions {
		if _, err := k.Ensure(ctx, s.Topic, Read); err != nil {
			return err
		}
		if _, _, err := k.Place(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// mayDeclare returns an error if a topic or a subscription that exists cannot be used by this program, or the broker would not make a missing topic.
func (k *Keeper) mayDeclare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	for _, name := range names {
		t, err := k.Look(ctx, name, Write)
		switch {
		case err == nil:
			_, err = k.Inspect(ctx, name, t)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			err = k.mayCreate(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	for _, s := range subscriptions {
		_, err := k.Look(ctx, s.Topic, Read)
		switch {
		case err == nil:
			if _, _, err = k.admit(ctx, s); err == nil {
				err = k.refuseStrangers(ctx, s)
			}
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			err = k.mayCreate(ctx, s.Topic)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// admit returns the committed offsets of a subscription and its Owner, or an error if it belongs to another service.
func (k *Keeper) admit(ctx context.Context, s messaging.Subscription) (kadm.OffsetResponses, Owner, error) {
	full, group := k.cfg.FullName(s.Topic), k.cfg.Group(s)
	found, err := k.admin.FetchOffsetsForTopics(ctx, group, full)
	if err == nil {
		err = found.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, Owner{}, k.Sorted("read the offsets of consumer group "+group, s, err)
	}
	var is Owner
	for _, o := range found[full] {
		is = is.Or(ParseOwner(o.Metadata))
	}
	return found, is, adapters.Owner(is).Admits(s, func(string) string {
		return "kafka-consumer-groups.sh --bootstrap-server " + k.cfg.Host + " --group '" + group + "' --topic " + full +
			" --reset-offsets --to-current --execute, while no consumer of the group runs"
	})
}

// Protocol is the name by which the consumers of a group agree on its partitions. A program that does not know it cannot join the group, and get a part
// of the messages.
const Protocol = "oncebox"

// refuseStrangers returns an error if another program consumes in the group of a subscription.
func (k *Keeper) refuseStrangers(ctx context.Context, s messaging.Subscription) error {
	group := k.cfg.Group(s)
	all, err := k.admin.DescribeGroups(ctx, group)
	found := all[group]
	if err == nil {
		err = found.Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return k.Sorted("look up consumer group "+group, s, err)
	}
	if who := stranger(found.Protocol, found.Members); who != "" {
		return k.Trouble("look up consumer group "+group, s, fmt.Errorf("%w: %s is in it", kerr.InconsistentGroupProtocol, who))
	}
	return nil
}

// stranger describes a member of a group whose protocol is not ours; empty if there is none.
func stranger(protocol string, members []kadm.DescribedGroupMember) string {
	if len(members) == 0 || protocol == "" || protocol == Protocol {
		return ""
	}
	return fmt.Sprintf("the client %q at %s (%s)", members[0].ClientID, members[0].ClientHost, protocol)
}

// Place gives a subscription its place in each partition, the earliest message where it has none, and marks it with its owner. marked is false if the
// group has a consumer: then only consumers can commit, and the next commit of this one marks it.
//
// Two services may start at once, find no mark, and write their own. Both look again, and the first writer is refused, because the second has overwritten
// its mark.
func (k *Keeper) Place(ctx context.Context, s messaging.Subscription) (is Owner, marked bool, err error) {
	found, is, err := k.admit(ctx, s)
	if err != nil {
		return is, false, err
	}
	if err := k.refuseStrangers(ctx, s); err != nil {
		return is, false, err
	}
	full, group := k.cfg.FullName(s.Topic), k.cfg.Group(s)
	started, err := k.admin.ListStartOffsets(ctx, full)
	if err == nil {
		err = started.Error()
	}
	if err != nil {
		return is, false, k.Sorted("read the first offsets of topic "+full, s, err)
	}
	owned := OwnerOf(s).Or(is)
	commit, fresh := kadm.Offsets{}, true
	started.Each(func(start kadm.ListedOffset) {
		to := kadm.Offset{Topic: full, Partition: start.Partition, At: start.Offset, LeaderEpoch: -1, Metadata: owned.Metadata()}
		if at, ok := found.Lookup(full, start.Partition); ok && at.At >= 0 {
			fresh = false
			to.At, to.LeaderEpoch = at.At, at.LeaderEpoch
			if ParseOwner(at.Metadata) == owned {
				return
			}
		}
		commit.Add(to)
	})
	if len(commit) == 0 {
		return owned, true, nil
	}
	done, err := k.admin.CommitOffsets(ctx, group, commit)
	if err == nil {
		err = done.Error()
	}
	switch {
	case isOccupied(err):
		return owned, false, nil
	case err != nil:
		return owned, false, k.Sorted("commit the first offsets of consumer group "+group, s, err)
	case fresh:
		k.log.InfoContext(ctx, "oncebox: the subscription has no offsets at the broker and begins at the earliest message; if it is not new, its offsets "+
			"have expired (offsets.retention.minutes), and it receives again what the topic still has", "topic", full, "group", group)
	}
	_, is, err = k.admit(ctx, s)
	return owned.Or(is), true, err
}

// isOccupied reports whether a commit from outside was refused because the group has consumers.
func isOccupied(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration)
}

// Lag asks the broker how many messages wait for a subscription.
func (k *Keeper) Lag(ctx context.Context, s messaging.Subscription) (kadm.DescribedGroupLag, error) {
	group := k.cfg.Group(s)
	found, err := k.admin.Lag(ctx, group)
	lag := found[group]
	if err == nil {
		err = lag.Error()
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return lag, k.Sorted("read the lag of consumer group "+group, s, err)
	}
	return lag, nil
}

// State returns the state of a subscription.
func (k *Keeper) State(ctx context.Context, s messaging.Subscription) (messaging.SubscriptionState, error) {
	lag, err := k.Lag(ctx, s)
	if err != nil {
		return messaging.SubscriptionState{}, err
	}
	return k.stateOf(s, &lag), nil
}

func (k *Keeper) stateOf(s messaging.Subscription, lag *kadm.DescribedGroupLag) messaging.SubscriptionState {
	state := messaging.SubscriptionState{Missing: true, Consumers: len(lag.Members)}
	for _, part := range lag.Lag[k.cfg.FullName(s.Topic)] {
		state.Missing = state.Missing && part.Commit.At < 0
		state.Messages += max(part.Lag, 0)
		state.Settled += max(part.Commit.At, 0)
		if part.Lag > 0 && part.Member == nil {
			state.Unattended++
		}
	}
	return state
}
