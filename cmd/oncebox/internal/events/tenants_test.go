package events

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/tenants"
)

// A tenant that was moved and is paused is one line.
func TestTenantsThatWereMovedAndPaused(t *testing.T) {
	list := tenantItems([]tenants.Group{{Tenant: "big", Group: 1}, {Tenant: "far", Group: 2}}, []tenants.Pause{{Tenant: "big"}, {Tenant: "small"}})
	var names []string
	for _, i := range list {
		names = append(names, i.Tenant)
	}
	require.Equal(t, []string{"small", "big", "far"}, names)
	require.Equal(t, []bool{true, true, false}, []bool{list[0].Paused != nil, list[1].Paused != nil, list[2].Paused != nil})
	require.Equal(t, []int16{0, 1, 2}, []int16{list[0].Group, list[1].Group, list[2].Group})
}
