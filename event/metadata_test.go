package event_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

func TestTenantOfAContext(t *testing.T) {
	ctx := context.Background()
	require.Empty(t, event.TenantFrom(ctx))
	acme := event.WithTenant(ctx, "acme")
	require.Equal(t, "acme", event.TenantFrom(acme))
	require.Equal(t, "other", event.TenantFrom(event.WithTenant(acme, "other")))
	require.Equal(t, "acme", event.TenantFrom(acme))
}

func TestMetadataOfAContextAddsUp(t *testing.T) {
	ctx := context.Background()
	require.Equal(t, event.Metadata{}, event.MetadataFrom(ctx), "never nil")
	request := event.WithMetadata(ctx, event.Metadata{"a": "1", "b": "1"})
	inner := event.WithMetadata(request, event.Metadata{"b": "2", "c": "2"})
	require.Equal(t, event.Metadata{"a": "1", "b": "2", "c": "2"}, event.MetadataFrom(inner))
	require.Equal(t, event.Metadata{"a": "1", "b": "1"}, event.MetadataFrom(request), "the outer context is as it was")
}

func TestContextsDoNotShareMetadata(t *testing.T) {
	mine := event.Metadata{"a": "1"}
	ctx := event.WithMetadata(context.Background(), mine)
	mine["a"] = "changed by the caller"
	require.Equal(t, event.Metadata{"a": "1"}, event.MetadataFrom(ctx))

	event.MetadataFrom(ctx)["a"] = "changed by a reader"
	require.Equal(t, event.Metadata{"a": "1"}, event.MetadataFrom(ctx))

	child := event.WithMetadata(ctx, nil)
	event.MetadataFrom(child)["a"] = "changed in a child"
	require.Equal(t, event.Metadata{"a": "1"}, event.MetadataFrom(ctx))
}

func TestCloneCanBeChanged(t *testing.T) {
	var none event.Metadata
	clone := none.Clone()
	clone["a"] = "1"
	require.Nil(t, none)
	require.Equal(t, event.Metadata{"a": "1"}, clone)
}
