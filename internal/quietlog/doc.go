// Package quietlog writes one line a minute about a failure that happens again and again.
//
// Records of WARN and above are put into groups. The first record of a group is written at once. Of the others the latest is written each interval,
// with the number of records and the time of the first. When none has come for a while, a line at INFO says so. So an outage is one line when it
// begins, one a minute while it lasts, and one when it is over, however many messages, requests and connections it hits.
//
// A group contains the records with one cause, at one place:
//
//   - If the database or the broker is away for the whole process, that is one group for each level. See [Away].
//   - A consumer that fails for one reason is one group, whichever of its lines says so. The reason is the text of the error, as package cause has
//     it. An ERROR also has its message: each asks for something else.
//   - Otherwise the group is the message, the reason, and the attributes that name a place: the topic, the route, the task. For a line without an
//     error all attributes count.
//
// Ids, keys, tenants, numbers and times do not make groups: there are so many of them that the log would be flooded again.
//
// [Every] is for lines that somebody wants to find one by one. There is no goroutine, and nothing to close. [Flush] writes the lines that were
// counted and are not written yet.
//
// Read first: handler.go:New.
package quietlog
