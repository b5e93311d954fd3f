// SPDX-License-Identifier: MPL-2.0

package regression_test

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// row is a bug that was found.
type row struct {
	area area
	// symptom is what a person would have seen, wrong is the cause.
	symptom, wrong string
	// scenario is how to reproduce it, with a seed if it depends on one.
	scenario string
	// seen is the last commit that had the bug: there the test fails.
	seen string
	// test reproduces it, in a package below internal.
	test test
	// replay reproduces it through the harness; nil if that takes more than the harness.
	replay *replay
}

// test is a function of a package.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + "." + t.name }

// replay is a scenario of the harness. It fails the test of the rig if the bug is back.
type replay struct {
	setup harness.Setup
	run   func(*harness.Rig)
}

// area is what a bug is about.
type area string

// The areas in the order of the page.
const (
	areaInstall    area = "Installs and reboots"
	areaParallel   area = "Several nodes at a time"
	areaLease      area = "Lease and journal"
	areaPlan       area = "Plans and checks"
	areaKube       area = "Kubernetes and its manifests"
	areaOperator   area = "Beside an operator"
	areaConnection area = "Connections"
	areaWords      area = "What is said"
	areaHarness    area = "The harness itself"
)

func areas() []area {
	return []area{areaInstall, areaParallel, areaLease, areaPlan, areaKube, areaOperator, areaConnection, areaWords, areaHarness}
}

// field is the last commit before the harness tried what had broken other people's upgrades.
const field = "69fc1a2"

func rows() []row {
	return slices.Concat(installRows(), parallelRows(), leaseRows(), planRows(), kubernetesRows(), operatorRows(), connectionRows(), wordRows(), harnessRows())
}

func engineTest(name string) test { return test{"engine", name} }
func planTest(name string) test   { return test{"plan", name} }

// readAlone is the last commit before the findings of readers who had seen nothing but the code were fixed.
const readAlone = "5f2378f7"

// reviewed is the last commit before the findings of a review of the parallel rolls were fixed.
const reviewed = "71a3833"

func installRows() []row {
	return []row{
		{
			area: areaInstall, seen: uncatalogued, test: engineTest("TestRollback_GoesOnWhereItWasKilled"),
			symptom:  "A node that had returned to its old system stayed cordoned, and no run would touch it.",
			wrong:    "Its entry was closed before it was back in service, and whoever finds an entry closed does nothing more.",
			scenario: "a sweep over every call of a return, killed behind the record",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestBoot_NodeThatWentThroughItIsNotRebootedAgain"), replay: rebootAskedTwice(),
			symptom:  "A node was rebooted a second time although it ran its new system already.",
			wrong:    "The reboot was asked for again after the guards without a look at whether the first request had come through meanwhile.",
			scenario: "seed 41, 3+2; worker-0 takes two minutes to go down, cp-2 falls silent for eight minutes in between",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestBoot_UnreadableIsNoOtherBoot"),
			symptom:  "A run failed, or told of a fallback that had not happened, because a boot ID could not be read for a while.",
			wrong:    "A boot ID that is missing was compared like any other.",
			scenario: "seed 41, 3+2, both APIs; the boot ID of worker-0 is unreadable for three minutes from the pull, the cordon or the drain on",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestBoot_EntryWithoutOneProvesNoReboot"),
			symptom:  "After a crash, a node that had not been rebooted was said to have fallen back.",
			wrong:    "An entry of the journal without a boot ID differed from the node's own, and that was taken for a reboot.",
			scenario: "seed 41, 3+2; killed behind the install, and the journal names no boots",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestInstall_ThatNeverTookIsPlannedAnew"),
			symptom:  "A run that found an install that had never happened installed without a pull, or failed because the image was gone.",
			wrong:    "The turn that closes what an earlier run left open went on with a plan that was made before it was known what the node runs.",
			scenario: "seed 7, 3+2; killed on the way into the installer, applied again at once or eight hours later, also with a newer target",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestInstall_ManyThatNeverTookAreFinishedInOneApply"),
			symptom:  "The apply after a crash failed: the node did not have the image of its installer any more.",
			wrong:    "An install that had never happened was made up for at once, without the pull that a planned one begins with.",
			scenario: "seed 5, 3+6, four workers at a time; killed while the connection to all four stood still",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestInstall_NotFromAPlanOlderThanTheReturnOfTheNode"),
			symptom:  "A minor version was skipped, or an install without an image was asked for, on a node that had gone back to its old system by itself.",
			wrong:    "The step was carried out as planned although the node no longer ran what it was planned from.",
			scenario: "seed 79, 3+3, 1.11 to 1.14; worker-1 seems to boot the new system and turns out to have fallen back",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestJournal_IntentAloneDoesNotArmTheNode"),
			symptom:  "A run that had installed nothing left its node cordoned and waited half an hour for guards that did not hold.",
			wrong:    "The intent in the journal counted as an installer that may have run.",
			scenario: "seed 51, 3+2, both APIs; the journal takes so long to be written that the guards are asked again",
		},
		{
			area: areaInstall, seen: uncatalogued, test: test{"test/harness/regression", "TestRegressions_ReplayedStayFixed"}, replay: killedBesideFallback(),
			symptom:  "After a crash a node that had fallen back stayed cordoned, and nobody took the cordon away.",
			wrong:    "The journal was told of the fallback before the node was back in service, and a closed entry is nobody's unfinished work.",
			scenario: "seed 5, 3+2; worker-0 falls back, killed before its uncordon",
		},
		{
			area: areaInstall, seen: carried, test: engineTest("TestRollback_OfANodeThatChangedItsSchematic"),
			symptom:  "A node that was ill with its new system was not rolled back, because it ran a schematic that was not installed.",
			wrong:    "What a look at the new boot left out was filled in from what was known of the old one.",
			scenario: "an upgrade that changes the schematic; the worker is never Ready with it",
		},
		{
			area: areaInstall, seen: carried, test: engineTest("TestBoot_BetweenTwoLooksIsNoticed"),
			symptom:  "A node that ran its new system, ill, was told to be on its old boot; below 1.13 its entry of the journal was deleted and its cordon lifted.",
			wrong:    "The boot ID of a machine that was seen on its way down was not read again until the machine was settled.",
			scenario: "a reboot between two looks; the node is never Ready with its new system",
		},
		{
			area: areaInstall, seen: field, test: engineTest("TestCatalogue45_MaintenanceModeIsNamedAtOnce"),
			symptom:  "A node in maintenance mode was waited for until node_timeout; a control plane that was alone belonged to another cluster.",
			wrong:    "The certificate that such a machine makes for itself was taken for one of another authority, or for a node that is not there yet.",
			scenario: "worker-0, cp-0 and the only control plane lose STATE in their reboot",
		},
		{
			area: areaInstall, seen: field, test: engineTest("TestCatalogue46_NodeUnderAnotherNameIsNamedAtOnce"),
			symptom:  "A node that came back under another name was waited for until node_timeout, and its kubelet was blamed.",
			wrong:    "The Node object was asked for by the name from before the boot, and nobody looked for the machine.",
			scenario: "worker-0 gets another hostname in its reboot, registered or not",
		},
		{
			area: areaInstall, seen: field, test: engineTest("TestCatalogue47_DeletedNodeDoesNotTakeAPoolAlong"),
			symptom:  "A worker that an autoscaler deleted in its turn was waited for until node_timeout.",
			wrong:    "A Node object that is gone was taken for one that is not there yet.",
			scenario: "the Node object and the machine are deleted during the reboot",
		},
		{
			area: areaInstall, seen: field, test: engineTest("TestCatalogue48_VolumesThatStayAttachedAreWaitedFor"),
			symptom:  "A volume stayed attached to a worker that had rebooted, and its pod could not start elsewhere.",
			wrong:    "A drain ended with the last pod, whatever the driver had still to detach.",
			scenario: "VolumeAttachments that outlive their pods",
		},
		{
			area: areaInstall, seen: field, test: engineTest("TestExtensions_RollStopsAtANodeThatLostOne"),
			symptom:  "A node that came back without an extension went into service.",
			wrong:    "Only the version of Talos and the schematic were looked at after a boot.",
			scenario: "an image of somebody's own that lacks iscsi-tools",
		},
	}
}

// carried is the commit at which facts of one boot were carried into the next.
const carried = "69fc1a2"

func parallelRows() []row {
	return []row{
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestRoom_OneNodeStaysForThePods"),
			symptom:  "With max_unavailable as high as the number of workers, pods were left with nowhere to go and drains were left out.",
			wrong:    "The budget of workers was the only bound; nobody kept a node for the pods of the others.",
			scenario: "seed 41; two workers at a time of two, or of the only two that take pods",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestShared_ManyWorkersMoveSideBySide"),
			symptom:  "In large clusters workers gave up before they were cordoned.",
			wrong:    "What other turns did between two looks made each look stale, and many turns starved each other until their patience ended.",
			scenario: "seed 41, 3+70, looks that take long",
		},
		{
			area: areaParallel, seen: "a1dd59f", test: engineTest("TestShared_WaitingForOthersIsNotTakenFromNodeTimeout"),
			symptom:  "The last of many workers ran out of its node_timeout while it waited for its turn to be cordoned.",
			wrong:    "The time of a node began before the queue for cordons.",
			scenario: "seed 41, 3+40, 39 at a time; each look takes 12 s",
		},
		{
			area: areaParallel, seen: "a1dd59f", test: engineTest("TestShared_RetryAfterAFallbackHoldsNobodyBack"), replay: retryBesideOthers(),
			symptom:  "A node that was to be tried again after a fallback held all others back until its image was pulled.",
			wrong:    "Its closed entry in the journal was read like the open one of a node whose install nobody knows the outcome of.",
			scenario: "seed 53, 3+5, two at a time; worker-0 falls back, a person reboots it, its retry pulls for 15 minutes",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestShared_TurnThatHasNotTouchedItsNodeStandsDown"),
			symptom:  "After a failure a further node was cordoned.",
			wrong:    "A turn that was still pulling when another one failed went on as if it had begun.",
			scenario: "seed 51, 3+5, two at a time; worker-0 fails while worker-1 pulls",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestShared_NothingStartsBesideATurnThatIsSeenToFail"),
			symptom:  "A node was begun beside one that had visibly fallen back.",
			wrong:    "A failure counted only once its turn had ended, which takes as long as the way back does.",
			scenario: "seed 53, 3+5; worker-0 falls back, or its legacy installer fails, and takes long to be back",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestShared_UncertainInstallHoldsOthersBack"),
			symptom:  "Further nodes were begun although nobody could tell whether the last install had worked.",
			wrong:    "A lost reply to an install did not count as doubt.",
			scenario: "seed 57, 3+5; the reply to an install is lost",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestNodeUpgrade_CordonOfAnEarlierRunIsNoWayAroundCanaries"), replay: cordonBeforeCanary(),
			symptom:  "A node was upgraded before the canary.",
			wrong:    "An earlier run had left it cordoned, and what is unfinished goes first.",
			scenario: "seed 7, 3+3; killed at the first eviction, applied again with worker-2 as canary",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestSoak_SurvivesAKilledRunBeforeTheNextHop"),
			symptom:  "The next minor version began before settle was over.",
			wrong:    "After a crash all nodes ran what the next hop begins with, so nobody was known to have to settle.",
			scenario: "seed 79, 3+2, 1.11 to 1.14, settle 10 minutes; killed a minute after the last uncordon of a hop",
		},
		{
			area: areaParallel, seen: "8ae5144", test: planTest("TestProperty_RollsAreSafeAtEveryMoment"),
			symptom:  "The rest of the cluster followed a canary that had broken after its upgrade.",
			wrong:    "A canary at its target was no canary any more.",
			scenario: "drawn rolls: found within the first draws (1+1, canary worker-1 not Ready)",
		},
		{
			area: areaParallel, seen: "8ae5144", test: planTest("TestTalos_OneDeadUnfinishedNodeDoesNotBlockTheOthers"),
			symptom:  "Nodes that a dead run had left half done stayed so because one of them did not answer.",
			wrong:    "What is unfinished was ordered by name, and the run stopped at the first that could not be finished.",
			scenario: "two unfinished workers, one of them silent",
		},
	}
}

func leaseRows() []row {
	return []row{
		{
			area: areaParallel, seen: "bd31ba8", test: test{"engine", "TestRollout_NodeThatAnEarlierRunCordonedWaitsForTheOthers"},
			symptom:  "A worker was drained and rebooted although another one, which a person had cordoned, took the only place of max_unavailable.",
			wrong:    "A node with a cordon of an earlier run cost nothing of the budget, although it still ran its pods.",
			scenario: "a run that died behind a cordon, and a person who cordons another worker",
		},
		{
			area: areaLease, seen: "4207468", test: engineTest("TestLease_RunThatStoodStillSaysWhoTookIt"),
			symptom:  "An apply whose process had been stopped, and whose lease another run had taken, said that its journal could not be written.",
			wrong:    "The time for the write was up before anybody asked whose the lease was.",
			scenario: "1+2 through the CLI at 60 times; SIGSTOP right after an install, SIGCONT once the successor has cordoned; under load",
		},
		{
			area: areaLease, seen: reviewed, test: engineTest("TestJournal_NotWrittenOnALeaseThatRanOutMeanwhile"),
			symptom:  "The journal was written under a lease that somebody else may have held by then.",
			wrong:    "The lease was looked at before the wait for another turn that was writing, not after it.",
			scenario: "seed 59, 3+5; a write of the journal takes longer than the lease lasts",
		},
		{
			area: areaLease, seen: reviewed, test: engineTest("TestFailure_LostLeaseSpeaksForItsOwnRunOnly"),
			symptom:  "A run that had lost its lease told which nodes were in service, when another run had them in hand.",
			wrong:    "The last look of a failed run was reported whoever held the lease.",
			scenario: "seed 59, 3+5; the lease is taken over in the middle of a turn",
		},
		{
			area: areaLease, seen: "db31ed1", test: engineTest("TestObserve_SlowClusterIsStillObserved"), replay: slowMembers(),
			symptom:  "An apply of a large cluster with silent nodes failed before it began.",
			wrong:    "The first look was cut off after the 30 s that a lease lasts, which has nothing to do with it.",
			scenario: "seed 0, 3+2; the list of members takes 45 s",
		},
		{
			area: areaLease, seen: "936d86f", test: engineTest("TestLease_TakenWithoutAReplyIsGivenBack"),
			symptom:  "A run that was cancelled just after it had begun left its lease behind, and the next one watched it for 30 s.",
			wrong:    "The reply to the write of the lease was lost, or the cancel cut the write off, and a lease without a reply counted as not taken.",
			scenario: "story 1462872251; the first request that changes something loses its reply, and a cancel follows",
		},
		{
			area: areaLease, seen: "7028d559", test: engineTest("TestLease_LastWordsDoNotWaitForEachOther"),
			symptom:  "The last Event of an upgrade was missing.",
			wrong:    "Observers passed on their last words one after the other within ten seconds: slow annotations left the Events no time.",
			scenario: "an observer that never ends, followed by another one",
		},
		{
			area: areaLease, seen: readAlone, test: engineTest("TestRollBackNode_RecordWithoutAReplyIsTakenBack"),
			symptom:  "A node was said to run as before, and the next apply sent it back to its old system.",
			wrong:    "The record of a rollback whose reply was lost counted as not written.",
			scenario: "Ctrl-C while the journal is written",
		},
		{
			area: areaLease, seen: "f9359349", test: engineTest("TestSuspension_HoldsAComponentWhoseConfigurationDidNotReachItsNode"),
			symptom:  "A component was changed although the upgrades were suspended.",
			wrong:    "A configuration that certainly had not reached its node counted as begun, and what has begun is finished.",
			scenario: "Kubernetes; a node that does not answer, or is busy, when its kubelet is configured, suspended at that moment",
		},
		{
			area: areaLease, seen: readAlone, test: engineTest("TestSuspension_CordonOfADeadRunDoesNotOutlastIt"),
			symptom:  "A node stayed cordoned while upgrades were suspended, and the apply failed at a gate instead of waiting.",
			wrong:    "A node that a dead run had only cordoned waited for its image and its gates before it was looked at whether upgrades are suspended.",
			scenario: "killed after a cordon, suspended, and a gate that does not hold",
		},
	}
}

func planRows() []row {
	return []row{
		{
			area: areaPlan, seen: reviewed, test: engineTest("TestObserve_NodeThatTheConfigurationNamesMayLeave"), replay: namedNodeLeaves(),
			symptom:  "A roll failed because a node was removed that canary, hold or node_overrides name.",
			wrong:    "What is an error of the configuration in a plan was one in the middle of a roll too.",
			scenario: "seed 173, 3+3; worker-0 is named and leaves",
		},
		{
			area: areaPlan, seen: "f967c1f", test: planTest("TestCheck_KubernetesOfAnotherClusterIsRefused"),
			symptom:  "A run was refused because kubeconfig and talosconfig seemed to lead to two clusters.",
			wrong:    "A node that had just rebooted has another boot ID than its Node object still tells.",
			scenario: "a node in the middle of its turn",
		},
		{
			area: areaPlan, seen: "a1dd59f", test: planTest("TestTalos_TargetBelowWhatANodeMayBootIsRefused"),
			symptom:  "Going back to a lower target was refused for ever after a node had fallen back.",
			wrong:    "An open entry of the journal was taken for something that may still boot, although the node had been through its reboot.",
			scenario: "worker-1 recorded as rebooting, with another boot ID than recorded",
		},
		{
			area: areaPlan, seen: "169d733", test: test{"health", "TestBudget_EvictionsThatFailAreForeseen"},
			symptom:  "A roll was refused for a budget without anything to give, which the roll itself would have cured.",
			wrong:    "Pods on a node that is not Ready, and that moves first, counted as missing for good.",
			scenario: "worker-2 not Ready and first in the roll, a budget that misses its pod",
		},
		{
			area: areaPlan, seen: "8ae5144", test: planTest("TestBudget_IsAShareOfAllWorkers"),
			symptom:  "A spent max_unavailable was explained with what does not help.",
			wrong:    "Cordoned and NotReady workers had one remedy between them.",
			scenario: "workers that are cordoned, not Ready, and some of each",
		},
		{
			area: areaPlan, seen: "f15913a", test: test{"image", "TestRepository_FactoryIsRecognisedBehindMirrors"},
			symptom:  "Clusters on Digital Ocean were told that their image is none of a factory.",
			wrong:    "The pattern of installer names had no dash in a platform.",
			scenario: "factory.talos.dev/digital-ocean-installer",
		},
		{
			area: areaPlan, seen: field, test: planTest("TestDefect_VersionsOnTheWayAreHeldAgainstTheList"),
			symptom:  "Talos 1.13.1 was offered and planned, and failed at the pull.",
			wrong:    "Nothing was known of releases that were taken back.",
			scenario: "talos_version 1.13.1",
		},
		{
			area: areaPlan, seen: field, test: planTest("TestOverrides_TagIsTheOneOfTheTarget"),
			symptom:  "An installer_image as talos_image_factory_urls gives it was refused.",
			wrong:    "A tag was refused wherever there was one.",
			scenario: "an installer_image with the tag of talos_version",
		},
		{
			area: areaPlan, seen: "f9359349", test: test{"provider", "TestState_AttributeOfALaterVersionIsNoChange"},
			symptom:  "A version of the provider with a new attribute would have shown a change of every resource to whoever only upgraded the provider.",
			wrong:    "A state without the attribute was read as null, and a plan has the default.",
			scenario: "an attribute with a default, added as the recipe said",
		},
		{
			area: areaPlan, seen: "f9359349", test: test{"provider", "TestRead_OfAnotherClusterIsAWarning"},
			symptom:  "A resource whose cluster was reached by a default context that now leads elsewhere could not be mended by naming the context.",
			wrong:    "A refresh, which goes by the context in the state, was an error, so that the one in the configuration was never used.",
			scenario: "talosctl config context; then context in the resource",
		},
		{
			area: areaPlan, seen: "5efe941b", test: engineTest("TestRollout_PodsThatAreNotReadyForNoReasonAreWaitedFor"),
			symptom:  "An apply was refused because of control plane components that were Ready, seconds after a health check had passed.",
			wrong:    "Kubernetes marks the pods of a node that missed its heartbeats, and the kubelet corrects that only after the node is Ready again.",
			scenario: "real machines; a control plane that is starved of CPU while workers boot",
		},
		{
			area: areaPlan, seen: field, test: test{"plan", "TestReleases_PlansGoByTheTableThatIsNamed"},
			symptom:  "A cluster was led through a patch that had been withdrawn after the provider was built.",
			wrong:    "The table of releases was as old as the provider.",
			scenario: "allow_intermediate_versions over a minor version with a withdrawn patch",
		},
		{
			area: areaPlan, seen: "4aac796", test: planTest("TestOrder_StepsComeInTheOrderThatCostsLeast"),
			symptom:  "A run that resumed drained one worker while another, which had its new version already, stayed cordoned; a disruption budget without room ended it each time.",
			wrong:    "Nodes that an earlier run had left out of service were sorted by name, whatever they still needed.",
			scenario: "two workers cordoned by a run that lost its lease, one of them installed, and fewer workers than before",
		},
	}
}

func kubernetesRows() []row {
	const synced = "afe1aed"

	manifestTest := func(name string) test { return test{"adapter/manifest", name} }

	return []row{
		{
			area: areaKube, seen: readAlone, test: manifestTest("TestSync_ExcludedObjectIsNotPrunedOnceItIsNoLongerRendered"),
			symptom:  "An excluded object would have been deleted by a sync with prune.",
			wrong:    "Only objects that Talos still rendered were taken for excluded.",
			scenario: "CoreDNS is excluded, managed by a chart, and disabled in the machine configurations",
		},
		{
			area: areaKube, seen: readAlone, test: manifestTest("TestSync_ForceDeletesNothingThatCannotBeCreated"),
			symptom:  "A sync with force would have deleted an object, such as a CRD with all its objects, that was refused for another reason than an immutable field.",
			wrong:    "Every answer \"invalid\" or \"conflict\" counted as an immutable field.",
			scenario: "a manifest with an invalid key beside one whose immutable data changes",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestComponent_NewerReleaseCuresABrokenOne"),
			symptom:  "A component that did not come up with a release kept every newer release from being tried.",
			wrong:    "The guard wanted the broken component whole before its own turn came.",
			scenario: "seed 0, 1+1; the scheduler of cp-0 crashes with 1.35.1, applied again with 1.35.2",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestManifests_SyncThatDoesNotWaitIsDoneAfterEachLeg"), replay: syncWithoutWaiting(),
			symptom:  "Bootstrap manifests were left as they were before Talos moved.",
			wrong:    "A sync of the same version of Kubernetes was done once in a run, however much had moved since.",
			scenario: "seed 0, 3+2, Talos 1.13 to 1.14 with Kubernetes 1.31 to 1.32, manifests.timeout 0",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestManifests_OneThatNeverRendersDoesNotHoldUpTheRest"),
			symptom:  "One manifest that a control plane could not download kept all others from being synced.",
			wrong:    "An incomplete rendering was waited for without end in sight.",
			scenario: "seed 0; one manifest is never rendered, with prune and without",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestManifests_RolloutThatFlapsForEverEndsWithTheRun"),
			symptom:  "A run did not end while pods of a DaemonSet flapped.",
			wrong:    "Whatever changed counted as progress of the rollout, and progress had no deadline.",
			scenario: "seed 0; every look at the rollout shows something new",
		},
		{
			area: areaKube, seen: synced, test: test{"adapter/manifest", "TestRender_IncompleteIsNotTakenForAll"},
			symptom:  "Objects would have been pruned that a control plane had not rendered yet.",
			wrong:    "A rendering right after a boot was taken for all there is.",
			scenario: "a control plane that has just booted and still downloads",
		},
		{
			area: areaKube, seen: "8eca4f3", test: engineTest("TestComponent_NothingFollowsTroubleOfEtcd"),
			symptom:  "A component of a control plane was restarted although a member of etcd followed no leader.",
			wrong:    "Between components only the alarms of etcd were asked for, and the answer could be two minutes old.",
			scenario: "seed 3718613578, Kubernetes of 3+2; the first run is killed, and cp-1 follows no leader from the moment in which the next one begins",
		},
	}
}

func wordRows() []row {
	return []row{
		{
			area: areaWords, seen: "4aac796", test: test{"observer/publish", "TestAnnounce_OnlyWhatIsUntrueOrMissing"},
			symptom:  "The annotations said failed although the next apply had found every node at its target.",
			wrong:    "An apply with nothing to do published only on an object that publish_to names, and not on the ConfigMap of the provider itself.",
			scenario: "a worker that does not answer for six minutes when a roll looks at the cluster for the last time",
		},
		{
			area: areaWords, seen: readAlone, test: engineTest("TestFailure_NodeThatAnEarlierRunCordonedIsPutBack"),
			symptom:  "A failure said that its node was not cordoned, and it was: by a run that had died.",
			wrong:    "Only a cordon of the same run was taken back, and a pull that failed took back none.",
			scenario: "killed after a cordon; the next run cannot pull the image of that node",
		},
		{
			area: areaWords, seen: readAlone, test: test{"engine/say", "TestFailure_InterruptedUpgradesDidNotFail"},
			symptom:  "The report of a cancelled roll of several nodes at a time said that it had failed.",
			wrong:    "Upgrades that were interrupted beside the first one counted as failed.",
			scenario: "Ctrl-C with two workers under way",
		},
		{
			area: areaWords, seen: readAlone, test: test{"provider", "TestAvailableVersions_ValidateTheirInput"},
			symptom:  "A module that passes its variables on to talosupgrade_available_versions was refused, although they were null.",
			wrong:    "While a configuration is validated every variable is unknown, and unknown counted as set.",
			scenario: "context and talos_version from variables whose default is null",
		},
		{
			area: areaWords, seen: "28cd42e", test: engineTest("TestInstall_ThatNeverTookIsPlannedAnew"),
			symptom:  "A node was said to be done that had only been put back into service.",
			wrong:    "A turn that leaves its node to the next plan ended like one that has moved it.",
			scenario: "seed 7, 3+2; killed on the way into the installer, applied again",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestNodeUpgrade_NodeIsSaidToHaveReachedWhatItRuns"),
			symptom:  "A node was said to have reached a version that it did not run yet.",
			wrong:    "The version was the one of the plan, not the one that the node told.",
			scenario: "seed 79, 3+2, 1.11 to 1.14; killed at the last uncordon of the first hop",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFailure_NamesNodesThatAnotherTurnLeftUnfinished"),
			symptom:  "A failure said that no other node was touched while one lay half upgraded.",
			wrong:    "The error knew its own turn only.",
			scenario: "seeds 163, 167 and 53, 3+5, two at a time; worker-0 never returns",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFailure_NamesNodesThatAreNotInService"),
			symptom:  "A failure said that the nodes done so far were in service when one was not.",
			wrong:    "The error repeated what the run had meant to do instead of what the last look showed.",
			scenario: "seed 51, 3+5; the installer of worker-0 fails",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFailure_FallbackIsSaidInServiceOnlyWhenItIs"),
			symptom:  "A node that had fallen back was said to be in service although its kubelet was down.",
			wrong:    "The way back into service was taken for granted.",
			scenario: "seed 53, 3+5; worker-0 falls back and does not become Ready either",
		},
		{
			area: areaWords, seen: "4bd3c44", test: engineTest("TestComponent_CrashingStaticPodSaysWhy"),
			symptom:  "A component that crashed again and again was said to be in CrashLoopBackOff, and not why.",
			wrong:    "The log of the kubelet was shown, and not that of the container.",
			scenario: "the API server, the scheduler or the controller manager of cp-1 crashes",
		},
		{
			area: areaWords, seen: field, test: test{"provider", "TestReport_NoPlaceIsAWarningOfThePlan"},
			symptom:  "A report_path that takes no file was found out by the apply.",
			wrong:    "The plan looked at what is there, and not at whether something can be.",
			scenario: "report_path below /proc",
		},
	}
}

func harnessRows() []row {
	return []row{
		{
			area: areaHarness, seen: "891faa0", test: test{"test/sim/checker", "TestChecker_JudgesEveryTale"},
			symptom:  "The checker missed a second reboot of a node that ran its target.",
			wrong:    "The end of a call that is written down late was told from a second call by whether the node ran.",
			scenario: "tales \"S4: a second reboot right after the one that was needed\" and \"S4: a reboot of a node at the target that runs still when the call ends\"",
		},
		{
			area: areaHarness, seen: "823c168", test: test{"test/sim/checker", "TestChecker_JudgesEveryTale"},
			symptom:  "A run was blamed for not having looked at a node after a step that it could not have known of.",
			wrong:    "The request of a run that died took effect while the node downloaded for the next run, which was judged by the end of its call.",
			scenario: "drawn stories, TALOSUPGRADE_SEED=2066904145 TALOSUPGRADE_ONLY=one; tale \"S3: the request of a run that died takes effect while the node downloads for the next\"",
		},
		{
			area: areaHarness, seen: "8024164", test: test{"test/harness/story", "TestStories_OfSoaksStayGood"},
			symptom:  "A run that succeeded was blamed for a worker that it had left alone.",
			wrong:    "A worker whose Node object a person deletes while it is down is taken for removed. The story expected it to be upgraded.",
			scenario: "drawn stories, TALOSUPGRADE_SEED=3058611140 TALOSUPGRADE_ONLY=one",
		},
		{
			area: areaHarness, seen: "8024164", test: test{"test/harness/story", "TestStories_OfSoaksStayGood"},
			symptom:  "The last apply of a story was refused, because a control plane had no static pods.",
			wrong:    "The story did not wait until the kubelet of a control plane whose Node object had been deleted showed them again.",
			scenario: "drawn stories, TALOSUPGRADE_SEED=3058617079 TALOSUPGRADE_ONLY=one",
		},
	}
}

func operatorRows() []row {
	return []row{
		{
			area: areaOperator, seen: readAlone, test: engineTest("TestSuspension_ClusterIsCheckedAgainBeforeTheOperatorIsAsked"),
			symptom:  "The operator was asked to upgrade a cluster that was no longer fit for it.",
			wrong:    "The checks were those from before a suspension, a gate or a snapshot of etcd, however long ago that was.",
			scenario: "mode = delegate, suspended for an hour, in which etcd runs out of space",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestOperatorHold_OperatorAtWorkIsNotForgotten"),
			symptom:  "A node was cordoned while the operator of the cluster was seen to be at work.",
			wrong:    "One read of its object that failed counted as nothing in the way.",
			scenario: "3+2; every fourth read of the object fails after somebody set a target",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestDelegate_NoNodeIsTakenBackByALegOfTheOthers"),
			symptom:  "A node that had joined at the target was taken back to an older Talos by the operator.",
			wrong:    "Nobody asked whether a node already runs more than the leg in between leads to.",
			scenario: "1.11.6 to 1.13.4 with a worker that runs 1.13.4",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestOperatorHold_ThatLandsAfterACancelIsEnded"),
			symptom:  "An operator was kept from acting for ever by a run that was over.",
			wrong:    "The request that was cut off took effect after the run had looked for it.",
			scenario: "cancelled in the middle of the hold",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestOperatorHold_SilentSecretLeavesTimeForItsEnd"),
			symptom:  "A hold was left behind by a cancelled run.",
			wrong:    "What the operator remembers was written within the time for setting it free.",
			scenario: "the Secret does not answer",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestOperatorHold_NoVersionsAreWrittenWhileTheOperatorIsFree"),
			symptom:  "The versions in the Secret of an operator at work were overwritten.",
			wrong:    "They were written whether the operator was still held or not.",
			scenario: "somebody ends the hold and asks for 1.13.6",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestDelegate_ForgottenTargetIsTakenBack"),
			symptom:  "Every apply was refused because of a version that the cluster ran already.",
			wrong:    "What a run that died had asked for, and the operator left, was taken for the request of somebody else.",
			scenario: "1.33.4 to 1.35.2, killed on the way",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestDelegate_WindowMayCloseWithNoLegLeft"),
			symptom:  "The provider crashed between two legs.",
			wrong:    "The end of the window was said with the next step of a plan that had none.",
			scenario: "a kubelet moved past the target by hand meanwhile",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestDelegate_FailedUpgradeIsAskedForAnew"),
			symptom:  "An operator that had failed was asked again and did not react.",
			wrong:    "Its target was taken back and set again before it could notice.",
			scenario: "worker-1 fails once; the operator looks every 5 s",
		},
	}
}

// uncatalogued is the last commit before the failure catalogue was worked through row by row, and before stories were
// drawn and calls on the wire were struck.
const uncatalogued = "b3f0a5d"

func connectionRows() []row {
	talos := func(name string) test { return test{"adapter/talosapi", name} }

	return []row{
		{
			area: areaConnection, seen: uncatalogued, test: engineTest("TestCancel_CallUnderWayEndsUnderTheLease"),
			symptom:  "A machine configuration took effect a tenth of a second after a cancelled run had given its lease back.",
			wrong:    "A cancel cut off calls that were under way, and a node carries out what has arrived.",
			scenario: "drawn stories, seed 50000; 3+2, Kubernetes 1.34.2 to 1.35.2, cancelled 0.7 s into a call",
		},
		{
			area: areaConnection, seen: uncatalogued, test: engineTest("TestLease_LastWordStandsBeforeItIsGivenBack"),
			symptom:  "The annotations said in-progress for ever, of a cluster at its target.",
			wrong:    "The lease was given back before the last word stood; a process that died in between left nobody who would say it.",
			scenario: "a run that reaches its target; who holds the lease when its last word is published",
		},
		{
			area: areaConnection, seen: uncatalogued, test: engineTest("TestRollback_AlsoWhereTheLastLookIsCutOff"),
			symptom:  "A node that had been on its new boot for half an hour was said not to have come back, in every third apply.",
			wrong:    "A look that the end of the time had cut off overwrote what was known of the node.",
			scenario: "a real apply; a worker that is never Ready, node_timeout 12m",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue21_SequenceLocked"),
			symptom:  "A run waited a quarter of an hour for the end of a legacy upgrade that never began, or took it for done.",
			wrong:    "An upgrade that another sequence keeps from starting is accepted and has no event of its own.",
			scenario: "row 21 of the failure catalogue; the node says so in an event without an actor, or says nothing",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue43_KeepaliveIsNotTooAggressive"),
			symptom:  "A look at a node failed because the node had closed the connection just then.",
			wrong:    "A question was not asked again on the endpoint whose connection had ended under it.",
			scenario: "row 43; GOAWAY behind the request",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue28_ClockSkew"),
			symptom:  "A node that had just booted with a wrong clock ended the run as if the credentials had expired.",
			wrong:    "Nobody remembered that the very same credentials had been accepted before, and no message spoke of clocks.",
			scenario: "row 28; certificates that are out of date by one clock only",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue06_SignatureDenied"),
			symptom:  "A pull that the node will never do was tried again and again.",
			wrong:    "The refusal of an image without signature has the code of a registry that is down.",
			scenario: "row 6; image verification denies the installer",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue40_DiskFull"),
			symptom:  "A full disk was waited for, and the message did not name it.",
			wrong:    "It has the code of a registry that is down too.",
			scenario: "row 40; no space left on device in the middle of a pull",
		},
		{
			area: areaConnection, seen: uncatalogued, test: test{"adapter/kubeapi", "TestError_RefusalOfWhatWasAllowedBeforeMayHeal"},
			symptom:  "A run ended for want of a permission that it had, when the API server of a control plane had just been replaced.",
			wrong:    "An API server that starts serves before it has read who may do what, and its refusal was final.",
			scenario: "forbidden behind a list that was answered before",
		},
		{
			area: areaConnection, seen: uncatalogued, test: test{"test/harness/story", "TestStories_EndAtTheTarget"},
			symptom:  "A run that could not reach anything said what it had seen, and not what to do.",
			wrong:    "The first look had an error of its own without a remedy.",
			scenario: "drawn stories; a run that is cut off from its first call on",
		},
	}
}
