// Package frame has what stands around the content of the console's pages: how a page loads itself again, the pager of a list, and the form of its filter.
//
// # Guarantees
//
// All addresses are relative, with the name of a page alone. So they work below any prefix.
//
// Read first: live.go:NewLive, then pager.go.
package frame
