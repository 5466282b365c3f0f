package topics

import (
	"net/url"

	"github.com/oncebox/oncebox/messaging"
)

// Owner is the service that a subscription belongs to. Each commit of an offset carries it in its metadata, because a consumer group has no
// properties of its own.
type Owner struct{ Source, Installation string }

// The names within the metadata.
const (
	sourceKey       = "oncebox.source"
	installationKey = "oncebox.installation"
)

// OwnerOf returns the owner that a subscription names.
func OwnerOf(s messaging.Subscription) Owner { return Owner{s.Source, s.Installation} }

// Metadata returns the text that a commit carries.
func (o Owner) Metadata() string {
	values := url.Values{}
	if o.Source != "" {
		values.Set(sourceKey, o.Source)
		if o.Installation != "" {
			values.Set(installationKey, o.Installation)
		}
	}
	return values.Encode()
}

// ParseOwner reads the metadata of a commit. Those of other programs have no owner.
func ParseOwner(metadata string) Owner {
	values, err := url.ParseQuery(metadata)
	if err != nil {
		return Owner{}
	}
	return Owner{values.Get(sourceKey), values.Get(installationKey)}
}

// Or returns o with the fields that it leaves open from other.
func (o Owner) Or(other Owner) Owner {
	if o.Source == "" {
		return other
	}
	if o.Source == other.Source && o.Installation == "" {
		o.Installation = other.Installation
	}
	return o
}
