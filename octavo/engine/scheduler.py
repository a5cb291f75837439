"""The scheduler: which sequences compute how many tokens in the next step."""

from __future__ import annotations

from collections import deque

from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.prompt_scores import recall_scores
from octavo.engine.request import Request, RequestStatus, Sequence
from octavo.engine.room_calendar import RoomCalendar
from octavo.engine.step_plan import NO_DRAFTS, Drafts, StepPlan


class Scheduler:
    """Shares steps out over requests, in order of arrival.

    `running` requests hold blocks and are ordered by arrival; `waiting` ones hold none, and every one of them
    arrived after every running one, but for a request whose leader was finished from outside.
    """

    def __init__(
        self,
        manager: KVCacheManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_logits_rows: int,
    ) -> None:
        self.manager = manager
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_logits_rows = max_logits_rows
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_preemptions = 0
        self.prefix_queried_tokens = 0
        self.prefix_hit_tokens = 0
        self._num_arrived = 0
        self._plan: StepPlan | None = None  # the last one, if it may go on

    # ---- one step ----

    def schedule(self, drafts: Drafts = NO_DRAFTS) -> StepPlan:
        """Plans a step, with drafts of planned sequences where there is room for them.

        There is no prefill and no decode: every sequence's num_computed_tokens chases its tokens, and a step
        is a budget of tokens shared out. Running requests come first, the oldest before the others, each as
        far as the budget goes; where blocks run out, the youngest running request is preempted, so the oldest
        always advances. What is left of the budget admits waiting requests, first come, first served, unless
        blocks have run out. A plan that would come out as the last one is the last one, and looks at nobody.
        """
        if self._plan is not None and not drafts and self._goes_on(self._plan):
            return self._plan
        self._plan = None
        plan = StepPlan(self.max_num_batched_tokens, self.max_logits_rows)
        preemptions, running = self.num_preemptions, len(self.running)
        position = 0
        while position < len(self.running) and plan.tokens_left:
            self._advance(self.running[position], plan, may_preempt=True)
            position += 1
        if self.num_preemptions == preemptions:
            self._admit(plan)
            if drafts:
                self._add_drafts(plan, drafts)
            if plan.only_last_tokens and len(self.running) == running:
                self._plan = plan
        return plan

    def _goes_on(self, plan: StepPlan) -> bool:
        """Whether a plan of only last tokens is the next one, too: no request has come, gone or lost its blocks.

        Makes room for those that need it. If nobody does, no block has changed hands, and whoever waits would wait.
        """
        if plan.calendar is None:
            plan.calendar = RoomCalendar(plan.sequences)
        needy = plan.calendar.due()
        if needy and self.waiting:
            return False
        for sequence in needy:
            if not self.manager.reserve(sequence, sequence.num_computed_tokens + 1):
                return False
            plan.calendar.put(sequence)
        plan.calendar.advance()
        return True

    def _advance(self, request: Request, plan: StepPlan, may_preempt: bool) -> None:
        """Plans the next tokens of a running request's sequences."""
        before = len(plan.sequences)
        if request.beam_search is not None:
            plan.only_last_tokens = False
            if request.num_unfinished > 1:
                return self._advance_beams(request, plan, may_preempt)
        for sequence in request.active:  # grows where siblings fork
            count = len(sequence.token_ids) - sequence.num_computed_tokens
            if count != 1 or not plan.rows_left or not plan.tokens_left:
                plan.only_last_tokens = False
                count = plan.chunk(sequence)
                if count <= 0:
                    continue
            end = sequence.num_computed_tokens + count
            if end > sequence.writable_end and not self._make_room(request, sequence, end, may_preempt):
                if request.status is not RequestStatus.RUNNING:
                    plan.cut(before)
                return None
            plan.add(sequence, count)
            if request.pending:
                self._fork_resumed(request, sequence, end)
        return None

    def _add_drafts(self, plan: StepPlan, drafts: Drafts) -> None:
        """Plans drafts behind planned last tokens, with what is left of budgets and blocks that nobody waits for."""
        size, groups = self.manager.block_size, len(self.manager.windows)
        spare = self.manager.pool.num_available - sum(map(self._promised_to, self.running))
        for place, sequence in enumerate(plan.sequences):
            draft = plan.fitting(drafts.get(sequence, []))
            if not draft:
                continue
            end = len(sequence.token_ids) + len(draft)
            if end > sequence.writable_end:
                spare -= groups * -(-(end - sequence.writable_end) // size)
                if spare < 0 or not self.manager.reserve(sequence, end):
                    return
            plan.add_draft(place, draft)

    def _advance_beams(self, request: Request, plan: StepPlan, may_preempt: bool) -> None:
        """Plans the next tokens of several beams. They choose together: all compute their last token in one step, or
        none does and each catches up to it (after a preemption)."""
        before = len(plan.sequences)
        missing = self._missing_of_beams(request)
        together = missing <= plan.tokens_left and request.num_unfinished <= plan.rows_left
        for beam in request.active:  # grows where siblings fork
            count = len(beam.token_ids) - beam.num_computed_tokens
            if not together:
                count = min(count - 1, plan.tokens_left)
                if count <= 0:
                    continue
            end = beam.num_computed_tokens + count
            if end > beam.writable_end and not self._make_room(request, beam, end, may_preempt):
                if request.status is not RequestStatus.RUNNING:
                    plan.cut(before)
                elif together:
                    plan.hold_back(before)
                return
            plan.add(beam, count)
            if request.pending:
                self._fork_resumed(request, beam, end)

    def _missing_of_beams(self, request: Request) -> int:
        """Tokens that all beams of a request must compute before they choose."""
        missing = sum(len(beam.token_ids) - beam.num_computed_tokens for beam in request.active)
        if request.pending:
            shared_end = self._shared_end(request)
            missing += sum(len(beam.token_ids) - shared_end for beam in request.pending)
        return missing

    def _make_room(self, request: Request, sequence: Sequence, end: int, may_preempt: bool) -> bool:
        """Maps blocks up to position `end`, preempting the youngest as long as they do not suffice.

        False where the request itself was the youngest, or nobody may be preempted.
        """
        while not self.manager.reserve(sequence, end):
            if not may_preempt:
                return False
            youngest = self.running[-1]
            self.preempt(youngest)
            if youngest is request:
                return False
        return True

    # ---- admission ----

    def _admit(self, plan: StepPlan) -> None:
        """Starts waiting requests in order, as long as budget, sequences and blocks last."""
        if not self.waiting:
            return
        num_sequences = sum(request.num_sequences for request in self.running)
        promised = sum(map(self._promised_to, self.running))
        while self.waiting and plan.tokens_left and plan.rows_left:
            request = self.waiting[0]
            num_sequences += request.num_sequences
            if num_sequences > self.max_num_seqs or not self._start(request, promised):
                return
            self.waiting.popleft()
            self._insert_running(request)
            self._advance(request, plan, may_preempt=False)
            promised += self._promised_to(request)

    def _promised_to(self, request: Request) -> int:
        """Blocks that a running request's known tokens still need, and one more for each sequence and KV
        group."""
        return self.manager.blocks_wanted(request) + len(self.manager.windows) * request.num_sequences

    def _start(self, request: Request, promised: int) -> bool:
        """Looks a request's prefix up and gives its leader the blocks found, if all that it needs is
        available.

        The need is that of all known tokens, beside what is promised to running requests: who is admitted is
        not preempted at once.
        """
        leader, available = request.pending[0], self.manager.pool.num_available
        limit = self._hit_limit(request)
        hit = self.manager.match(leader, limit)
        if hit.has_tail and promised + self.manager.blocks_to_admit(request, hit) > available:
            hit = self.manager.match(leader, limit, whole_blocks=True)  # no room for a block and its copy
        if promised + self.manager.blocks_to_admit(request, hit) > available:
            return False
        self._count_hit(request, hit.num_tokens)
        self.manager.adopt(leader, hit)
        request.active.append(request.pending.pop(0))
        if request.pending and leader.num_computed_tokens == self._shared_end(request):
            self._fork_resumed(request, leader, leader.num_computed_tokens)
            self._find_own_prefixes(request)
        return True

    def _hit_limit(self, request: Request) -> int:
        """Tokens that the leader may take from the prefix cache."""
        if request.scores_prompt:
            recall_scores(self.manager, request)
            if request.prompt_logprobs is not None and request.scores_prompt:
                return len(request.prompt_logprobs) - 1  # the next token's logits are wanted
        if len(request.pending) > 1 and request.resumes_siblings:
            return self._shared_end(request)
        return len(request.pending[0].token_ids)

    def _count_hit(self, request: Request, num_tokens: int) -> None:
        if request.num_preemptions or self.manager.prefix_cache is None:
            return
        if request.prompt_logprobs is None or request.params.prompt_logprobs == 0:
            request.num_cached_tokens = num_tokens
            self.prefix_queried_tokens += request.num_prompt_tokens
            self.prefix_hit_tokens += num_tokens

    def _insert_running(self, request: Request) -> None:
        position = len(self.running)
        while position and self.running[position - 1].arrival > request.arrival:
            position -= 1
        self.running.insert(position, request)
        request.status = RequestStatus.RUNNING

    # ---- siblings of a resumed request ----  A new request's siblings fork when the prompt is computed and
    # its last row sampled. After a preemption each has output of its own: then they share the prompt's full
    # blocks again, and each computes what comes after these.

    def _shared_end(self, request: Request) -> int:
        """End of the prompt's full blocks, in tokens."""
        size = self.manager.block_size
        return request.num_prompt_tokens // size * size

    def _fork_resumed(self, request: Request, leader: Sequence, end: int) -> None:
        """Forks pending siblings with output as soon as the leader computes up to `end`, the shared blocks'
        end."""
        shared_end = self._shared_end(request)
        if request.resumes_siblings and end >= shared_end:
            for sibling in request.pending:
                self.manager.fork(leader, sibling, shared_end)
            request.active += request.pending
            request.pending = []

    def _find_own_prefixes(self, request: Request) -> None:
        """Gives each sequence what the prefix cache still has of its own output."""
        for sequence in request.active:
            hit = self.manager.match(sequence, len(sequence.token_ids), whole_blocks=True)
            if hit.num_tokens > sequence.num_computed_tokens:
                self.manager.adopt(sequence, hit)

    # ---- requests come, go and give way ----

    def add(self, request: Request) -> None:
        """Queues a request whose sequences are made."""
        request.arrival = self._num_arrived
        self._num_arrived += 1
        self.waiting.append(request)
        self._plan = None

    def preempt(self, request: Request) -> None:
        """Takes all blocks of a running request and puts it in front of the queue.

        Its computed blocks stay in the prefix cache until others need them. It resumes with the same output:
        sampling depends on positions alone, so there is nothing but KV to compute again.
        """
        self._take_from_running(request)
        for sequence in reversed(request.active):
            self.manager.keep_tail(sequence)
            self.manager.release(sequence)
        self._plan = None
        request.pending = sorted(request.active + request.pending, key=lambda sequence: sequence.index)
        request.active = []
        request.status = RequestStatus.WAITING
        request.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(request)

    def preempt_all(self) -> None:
        """Preempts every running request: between steps, for tests and for callers that want all blocks
        back."""
        for request in reversed(self.running.copy()):
            self.preempt(request)

    def fork_sampled(self, request: Request) -> None:
        """Forks a new request's pending siblings off its leader, whose prompt is computed and whose last row
        of logits all of them sample from."""
        leader = request.active[0]
        for sibling in request.pending:
            self.manager.fork(leader, sibling, leader.num_computed_tokens)
        request.active += request.pending
        request.pending = []

    def finish(self, sequence: Sequence, reason: str) -> None:
        """Ends one sequence and gives its blocks back; the request ends with its last one."""
        request = sequence.request
        self._plan = None
        sequence.finish_reason = reason
        self.manager.keep_tail(sequence)
        self.manager.release(sequence)
        if sequence in request.active:
            request.active.remove(sequence)
        else:
            request.pending.remove(sequence)
        if not request.num_unfinished:
            self._remove(request)
        elif not request.active and request.status is RequestStatus.RUNNING:
            self.preempt(request)  # the leader is gone: another one leads

    def finish_all(self, request: Request, reason: str, keep_tails: bool = True) -> None:
        """Ends a request in any state, with all its sequences. keep_tails: their computed KV is sound."""
        self._plan = None
        for sequence in reversed(request.active + request.pending):
            sequence.finish_reason = reason
            if keep_tails:
                self.manager.keep_tail(sequence)
            self.manager.release(sequence)
        request.active = []
        request.pending = []
        self._remove(request)

    def _remove(self, request: Request) -> None:
        if request.status is RequestStatus.WAITING:
            self.waiting.remove(request)
        elif request.status is RequestStatus.RUNNING:
            self._take_from_running(request)
        request.status = RequestStatus.FINISHED
        request.sequences = []  # breaks a reference cycle: memory is free at once, not at some collection

    def _take_from_running(self, request: Request) -> None:
        if self.running[-1] is request:
            self.running.pop()
        else:
            self.running.remove(request)
