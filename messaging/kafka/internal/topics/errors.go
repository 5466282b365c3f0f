package topics

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/oncebox/oncebox/messaging"
)

// IsTopicTrouble reports whether the broker refuses something about one topic, until somebody mends it.
func IsTopicTrouble(err error) bool {
	for _, trouble := range []error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
		kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.NotEnoughReplicas, kerr.PolicyViolation, kerr.KafkaStorageError,
		kerr.InvalidReplicationFactor, kerr.InvalidPartitions, kerr.InvalidGroupID, kerr.InvalidConfig, kerr.TopicDeletionDisabled,
	} {
		if errors.Is(err, trouble) {
			return true
		}
	}
	return false
}

// IsNotLetIn reports whether the broker refuses the credentials. Waiting does not mend that.
func IsNotLetIn(err error) bool {
	return errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState)
}

// sorted returns an error of a request about a topic: the broker refuses it, or did not answer.
func (k *Keeper) sorted(what, name string, err error) error {
	err = fmt.Errorf("kafka: %s: %w", what, err)
	switch {
	case IsTopicTrouble(err):
		return &messaging.TopicError{Topic: name, Err: err}
	case IsNotLetIn(err):
		return err
	default:
		return fmt.Errorf("%w: %w", messaging.ErrBrokerDown, err)
	}
}
