package topics

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

const (
	// unbatchedProperty marks subscriptions, made by oncebox, that need messages without batches. A process that publishes has to know this
	// before the first consumer comes, and until then the broker does not know the type of the subscription.
	unbatchedProperty = "oncebox.unbatched"
	// SourceProperty marks a subscription with the service that it belongs to.
	SourceProperty = "oncebox.source"
	// InstallationProperty marks it with the database of the service.
	InstallationProperty = "oncebox.installation"
)

// Properties returns the properties of a new subscription.
func Properties(s messaging.Subscription) map[string]string {
	properties := map[string]string{}
	if s.Type == messaging.KeyShared {
		properties[unbatchedProperty] = "true"
	}
	if s.Source != "" {
		properties[SourceProperty] = s.Source
	}
	if s.Installation != "" {
		properties[InstallationProperty] = s.Installation
	}
	return properties
}

// admit returns an error if a subscription is there and belongs to another service, or to another database of this one. It changes nothing: so a
// start that is refused for one of its subscriptions has made none of them.
func (k *Keeper) admit(ctx context.Context, s messaging.Subscription) error {
	// A subscription without an owner belongs to no service, for example that of a program that only reads.
	if s.Source == "" {
		return nil
	}
	partitions, err := k.Admin.Partitions(ctx, s.Topic)
	if answer.IsStatus(err, http.StatusNotFound) || answer.IsForbidden(err) {
		return nil // the topic does not exist yet, or cannot be seen: the look after it was made reports that
	}
	if err != nil {
		return err
	}
	properties, err := k.Admin.PropertiesOf(ctx, FirstPartition(s.Topic, partitions), s.Name)
	if answer.IsStatus(err, http.StatusNotFound) || answer.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.foreign(s, properties)
}

// foreign returns an error if a subscription with these properties belongs to another service, or to another database of this one.
func (k *Keeper) foreign(s messaging.Subscription, properties map[string]string) error {
	owner := adapters.Owner{Source: properties[SourceProperty], Installation: properties[InstallationProperty]}
	return owner.Admits(s, func(string) string {
		// The command sets all properties, so the existing ones have to be in it.
		given := maps.Clone(properties)
		maps.Copy(given, Properties(s))
		return k.giveTo(s, given)
	})
}

// own makes sure that an existing subscription belongs to the source of s. A subscription without a mark, made by hand for example, gets
// the mark.
//
// Two services may start at once. If the subscription is new, the broker lets one of the two requests make it, partition by partition. Both
// services look at the first partition after that, and its mark decides. If the subscription is old and has no mark, both services may find
// none and write their own. Both look again, and the first writer is refused, because the second has overwritten its mark. If the second
// writes only after that look, the first is refused at its next start.
func (k *Keeper) own(ctx context.Context, s messaging.Subscription, partitions int) error {
	if s.Source == "" {
		return nil
	}
	err := k.claim(ctx, s, partitions)
	if answer.IsForbidden(err) {
		k.to.Log.WarnContext(ctx, "oncebox: the credentials may not read at Pulsar's admin API which service a subscription belongs to; a second "+
			"service that uses the same consumer name would take a part of its messages, "+
			"unnoticed", "topic", k.FullName(s.Topic), "subscription", s.Name, "error", err)
		return nil
	}
	return err
}

// claim reads, writes if the mark is missing, and reads again. The second reading detects that another
// service has written meanwhile.
func (k *Keeper) claim(ctx context.Context, s messaging.Subscription, partitions int) error {
	first := FirstPartition(s.Topic, partitions)
	properties, err := k.Admin.PropertiesOf(ctx, first, s.Name)
	if err != nil {
		return err
	}
	if err := k.foreign(s, properties); err != nil {
		return err
	}
	if properties[SourceProperty] == "" || properties[InstallationProperty] == "" && s.Installation != "" {
		maps.Copy(properties, Properties(s))
		if err := k.Admin.setProperties(ctx, s.Topic, s.Name, properties); err != nil {
			return err
		}
		if properties, err = k.Admin.PropertiesOf(ctx, first, s.Name); err != nil {
			return err
		}
	}
	return k.foreign(s, properties)
}

// giveTo returns the command that sets the properties of a subscription. It replaces all existing properties.
func (k *Keeper) giveTo(s messaging.Subscription, properties map[string]string) string {
	var command strings.Builder
	command.WriteString("pulsar-admin topics update-subscription-properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		command.WriteString(" -p '" + name + "=" + properties[name] + "'")
	}
	return command.String() + " -s '" + s.Name + "' '" + k.FullName(s.Topic) + "'"
}

// PropertiesOf returns the properties of a subscription of an unpartitioned topic or of one partition.
func (a *Admin) PropertiesOf(ctx context.Context, topic, subscription string) (map[string]string, error) {
	properties := map[string]string{}
	err := a.do(ctx, http.MethodGet, a.subscription(topic, subscription)+"/properties", "", &properties)
	return properties, err
}

// setProperties replaces the properties of a subscription at all partitions.
func (a *Admin) setProperties(ctx context.Context, topic, subscription string, properties map[string]string) error {
	body, err := json.Marshal(properties)
	if err != nil {
		return err
	}
	return a.do(ctx, http.MethodPut, a.subscription(topic, subscription)+"/properties", string(body), nil)
}

// subscription returns the path of a subscription in the API.
func (a *Admin) subscription(topic, name string) string {
	return a.topic(topic) + "/subscription/" + url.QueryEscape(name)
}
