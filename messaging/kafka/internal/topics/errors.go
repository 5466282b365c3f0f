package topics

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/oncebox/oncebox/messaging"
)

// remedy is what an operator can do about an error; empty if the error says it.
type remedy struct {
	err  error
	mend string
}

// remedies are those for errors of one topic, or of one consumer group, that last until somebody mends them.
func (k *Keeper) remedies(full, group string) []remedy {
	rights := k.grant("WRITE", "topic", full) + " to publish, READ to receive, CREATE to make it"
	return []remedy{
		{kerr.TopicAuthorizationFailed, rights},
		{kerr.ClusterAuthorizationFailed, rights},
		{kerr.GroupAuthorizationFailed, k.grant("READ", "group", group)},
		{kerr.InconsistentGroupProtocol, "another program consumes in the group " + group + ": stop it, or give it a group of its own"},
		{kerr.GroupMaxSizeReached, "raise group.max.size of the brokers, or run fewer consumers"},
		{kerr.InvalidSessionTimeout, "choose Config.SessionTimeout (ONCEBOX_KAFKA_SESSION_TIMEOUT) between group.min.session.timeout.ms and " +
			"group.max.session.timeout.ms of the brokers"},
		{kerr.InvalidTimestamp, "correct the clock of this machine, or " + timestampBefore + " and " + timestampAfter + " of topic " + full},
		{kerr.NotEnoughReplicas, "start the brokers that are away, or lower " + minInSync + " of topic " + full},
		{kerr.UnknownTopicOrPartition, ""},
		{kerr.UnknownTopicID, ""},
		{kerr.InconsistentTopicID, ""},
		{kerr.InvalidTopicException, ""},
		{kerr.PolicyViolation, ""},
		{kerr.KafkaStorageError, ""},
		{kerr.InvalidReplicationFactor, ""},
		{kerr.InvalidPartitions, ""},
		{kerr.InvalidGroupID, ""},
		{kerr.InvalidConfig, ""},
	}
}

// Trouble returns a [*messaging.TopicError] for an error of a topic or its subscription that lasts until somebody mends it; nil for any other error.
func (k *Keeper) Trouble(what string, about messaging.Subscription, err error) error {
	for _, r := range k.remedies(k.cfg.FullName(about.Topic), k.cfg.Group(about)) {
		switch {
		case !errors.Is(err, r.err):
		case r.mend == "":
			return &messaging.TopicError{Topic: about.Topic, Err: fmt.Errorf("kafka: %s: %w", what, err)}
		default:
			return &messaging.TopicError{Topic: about.Topic, Err: fmt.Errorf("kafka: %s: %w. Mend it with: %s", what, err, r.mend)}
		}
	}
	return nil
}

// IsNotLetIn reports whether the broker refuses the credentials. Waiting does not mend that.
func IsNotLetIn(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState)
}

// Sorted returns the error of a request that has changed nothing: [Keeper.Trouble], or the broker cannot be used at present.
func (k *Keeper) Sorted(what string, about messaging.Subscription, err error) error {
	if trouble := k.Trouble(what, about, err); trouble != nil {
		return trouble
	}
	return fmt.Errorf("%w: kafka: %s: %w", messaging.ErrBrokerDown, what, err)
}

// of is for errors about a topic.
func of(topic string) messaging.Subscription { return messaging.Subscription{Topic: topic} }
