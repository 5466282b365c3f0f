// Package leases holds the lanes of a relay. The [Coordinator] claims and renews leases and gives lanes back, so that all projectors that are
// alive have equal shares. [Owned] has the lanes of one worker. Worker, coordinator and listener share no other data about lanes.
//
// Read first: coordinator.go: [Coordinator.Coordinate], then owned.go: [Owned.MayPublish].
package leases
