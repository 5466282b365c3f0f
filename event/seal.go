package event

import (
	"context"
	"errors"
	"fmt"
)

// ContentTypeSealed is the media type of a payload that a [Sealer] has sealed.
const ContentTypeSealed = "application/vnd.oncebox.sealed"

// Keys of [Metadata] of a sealed event. SealedKey shows that it is sealed even where the content type is not visible.
const (
	SealedKey         = "sealed_key"          // id of the key that opens the payload
	SealedContentType = "sealed_content_type" // media type of the opened payload
)

// ErrErased means that the key of an event was erased for good, so that its payload can never be read again. Do not return it if a key store does not
// answer or does not know the key yet.
var ErrErased = errors.New("event: the key of the payload was erased")

// Sealer encrypts payloads. A registry with a sealer ([WithSealer]) seals each payload after its codec, before it is stored, and opens it before the
// upcasters, when it is read.
//
// Both methods are called from many goroutines, while a transaction is open. So a sealer should keep keys in memory, and query a database through a
// pool of its own: with the pool of the units of work, all units could wait for each other's connections.
type Sealer interface {
	// Seal returns the sealed payload of env, and the id of the key that opens it. env is complete except for its Sequence, and must not be changed.
	// With an empty id the event stays as it is. An error fails the unit of work.
	Seal(ctx context.Context, env *Envelope) (sealed []byte, keyID string, err error)

	// Open undoes Seal. env is the envelope that Seal got, with the sealed payload. Topic, Delivery and added metadata may differ, because they can
	// change on the way. Bind ID, TenantID and Type to the payload, so that it opens in no other event.
	//
	// An error that wraps [ErrErased] means that the key is gone for good, a [*DecodeError] that this payload will never open with this key. Every
	// other error counts as an outage: the event is tried again until it passes.
	Open(ctx context.Context, env *Envelope, keyID string) (payload []byte, err error)
}

// WithSealer seals all payloads that are stored with this registry: encoded [Event]s, and payloads that were added as bytes. Events that
// were stored unsealed stay readable.
//
// Only payloads are sealed, in every table and at the broker. Ids, types, tenants, routing keys and metadata are not, because the
// delivery of an event needs them.
func WithSealer(s Sealer) RegistryOption { return func(r *Registry) { r.sealer = s } }

// Seal seals the payload of env in place, and marks it in the content type and metadata. Code that writes rows of the outbox calls it. An event that
// is sealed already stays as it is. Without a sealer, Seal only removes marks of a sealed event that were copied with another event's metadata. The
// error is the sealer's, or [ErrInvalid] if the metadata has no room for the id of the key.
func (r *Registry) Seal(ctx context.Context, env *Envelope) error {
	marked := env.Metadata[SealedKey] != ""
	if marked && env.ContentType == ContentTypeSealed || !marked && r.sealer == nil {
		return nil
	}
	if r.sealer == nil {
		env.Metadata = unmarked(env.Metadata)
		return nil
	}
	payload, keyID, err := r.sealer.Seal(ctx, env)
	if err != nil {
		return fmt.Errorf("event: seal %s %s: %w", env.Type, env.ID, err)
	}
	env.Metadata = unmarked(env.Metadata)
	if keyID == "" {
		return nil
	}
	env.Metadata[SealedKey], env.Metadata[SealedContentType] = keyID, env.ContentType
	env.ContentType, env.Payload = ContentTypeSealed, payload
	return env.Metadata.validate()
}

// Open returns env as it was before [Registry.Seal], or env itself if it is not sealed. Pass the result to [Registry.Decode]. The error wraps
// [ErrErased] if the key is gone for good, is a [*DecodeError] if this build cannot open it, and otherwise is the sealer's error. A messaging.Router
// calls Open for its handlers.
func (r *Registry) Open(ctx context.Context, env *Envelope) (*Envelope, error) {
	keyID := env.Metadata[SealedKey]
	if keyID == "" {
		return env, nil
	}
	if r.sealer == nil {
		return nil, &DecodeError{env.Type, max(env.SchemaVersion, 1), fmt.Errorf("sealed with key %q: make the registry with event.WithSealer", keyID)}
	}
	opened := *env
	opened.ContentType, opened.Metadata = env.Metadata[SealedContentType], unmarked(env.Metadata)
	payload, err := r.sealer.Open(ctx, &opened, keyID)
	if err != nil {
		return nil, fmt.Errorf("event: open %s %s: %w", env.Type, env.ID, err)
	}
	opened.Payload = payload
	return &opened, nil
}

// unmarked returns a copy without the entries that mark an event as sealed. They may have been copied with another event's metadata.
func unmarked(m Metadata) Metadata {
	m = m.Clone()
	delete(m, SealedKey)
	delete(m, SealedContentType)
	return m
}
