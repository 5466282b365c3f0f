package streams

import (
	"context"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// The metadata of a consumer, which says whose it is.
const (
	subscriptionKey = "oncebox-subscription"
	sourceKey       = "oncebox-source"
	installationKey = "oncebox-installation"
)

func metadataOf(s messaging.Subscription) map[string]string {
	md := map[string]string{subscriptionKey: s.Name}
	if s.Source != "" {
		md[sourceKey] = s.Source
	}
	if s.Installation != "" {
		md[installationKey] = s.Installation
	}
	return md
}

// own makes sure that a consumer belongs to the service of s. A consumer without an owner gets it. It reads again after it has written: of two services
// that claim a consumer at the same moment, the first is refused, because the second has overwritten its mark.
func (k *Keeper) own(ctx context.Context, st *Stream, s messaging.Subscription, c jetstream.Consumer) (jetstream.Consumer, error) {
	if s.Source == "" {
		return c, nil
	}
	is := c.CachedInfo().Config
	if err := foreign(s, is.Metadata, st.Name, is.Durable); err != nil {
		return nil, err
	}
	if is.Metadata[sourceKey] != "" && (is.Metadata[installationKey] != "" || s.Installation == "") {
		return c, nil
	}
	if k.OnlyChecks {
		return c, nil // this program changes nothing at the server
	}
	is.Metadata = maps.Clone(is.Metadata)
	if is.Metadata == nil {
		is.Metadata = map[string]string{}
	}
	maps.Copy(is.Metadata, metadataOf(s))
	err := k.session.Ask(ctx, st.Name, func(ctx context.Context) (err error) {
		if _, err = k.session.JS.UpdateConsumer(ctx, st.Name, is); err != nil {
			return err
		}
		c, err = k.session.JS.Consumer(ctx, st.Name, is.Durable)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, foreign(s, c.CachedInfo().Config.Metadata, st.Name, is.Durable)
}

// foreign returns an error if a consumer with this metadata belongs to another service, or to another database of this one.
func foreign(s messaging.Subscription, metadata map[string]string, stream, consumer string) error {
	owner := adapters.Owner{Source: metadata[sourceKey], Installation: metadata[installationKey]}
	return owner.Admits(s, func(part string) string {
		key, value := sourceKey, s.Source
		if part == adapters.Installation {
			key, value = installationKey, s.Installation
		}
		return fmt.Sprintf("nats consumer edit %s %s --metadata %s=%s, and so for its other partitions", stream, consumer, key, value)
	})
}
